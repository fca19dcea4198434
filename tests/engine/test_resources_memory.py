"""Freed memory is kept, in a new interpreter; arrays and tensors share memory."""

import os
import platform
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from skbayesnn._engine.resources import as_tensor

# Pages (of 4 KiB or larger) that 20 steps with 4 MiB of temporaries request from the
# system, before and after.
SCRIPT = """
import resource
import torch
from skbayesnn._engine.resources import keep_freed_memory

def faults_of_steps():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        values = [torch.ones(1 << 18) for _ in range(4)]
        del values
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
before = faults_of_steps()
keep_freed_memory()
faults_of_steps()
print(before, faults_of_steps())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a habit of glibc")
def test_freed_memory_is_kept():
    """After a large block was freed, further steps need no new pages."""
    # The allocator's settings stay for the whole process: Dask sets them in the
    # environment of its tests.
    environment = {n: v for n, v in os.environ.items() if not n.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    before, after = map(int, done.stdout.split())
    # 1,024 small pages a step; a hundredth of that leaves room for what Python needs.
    assert after < 20 * 1024 / 100
    assert after < before


def test_tensors_of_arrays():
    """Tensors share the memory of writable arrays; read-only arrays do not warn."""
    values = np.arange(6.0).reshape(2, 3)
    shared = as_tensor(values)
    values[1, 2] = -1
    assert shared[1, 2] == -1
    values.flags.writeable = False
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # otherwise torch warns once per process
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            copied = as_tensor(values)
    finally:
        torch.set_warn_always(always)
    copied[0, 0] = 7
    np.testing.assert_array_equal(values, [[0, 1, 2], [3, 4, -1]])
    assert as_tensor([1, 2]).tolist() == [1, 2]
