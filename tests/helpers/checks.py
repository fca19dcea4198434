"""Several checks in one test, which fails with the list of all failed checks."""

from contextlib import contextmanager

import pytest


class Checks:
    """A context that collects failures; call it with the name of each check.

    >>> with Checks() as check:
    ...     for value in (1, 2):
    ...         with check(f"value {value}"):
    ...             assert value > 0
    """

    def __enter__(self):
        self._failed, self._n_checks = [], 0
        return self

    @contextmanager
    def __call__(self, name):
        self._n_checks += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            self._failed.append(f"{name}: {type(error).__name__}: {error}")

    def __exit__(self, kind, error, traceback):
        if kind is None:
            assert self._n_checks, "nothing was checked"
            n_failed = len(self._failed)
            text = "\n\n".join(self._failed)
            assert not n_failed, f"{n_failed} of {self._n_checks} checks fail:\n{text}"
