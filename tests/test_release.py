"""Metadata of the package on an index."""

import importlib.util
import re
from pathlib import Path

import pytest

import skbayesnn

pytest.importorskip("hatchling")
ROOT = Path(__file__).parent.parent
URL = "https://code.example/team/skbayesnn"
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")


@pytest.fixture
def metadata_for(monkeypatch):
    """Metadata that a build adds, given the address of the repository."""
    spec = importlib.util.spec_from_file_location(
        "hatch_build", ROOT / "hatch_build.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def made(url):
        monkeypatch.setenv("SKBAYESNN_URL", url)
        metadata = {"version": skbayesnn.__version__}
        module.CustomMetadataHook(str(ROOT), {}).update(metadata)
        return metadata

    return made


def test_links_of_the_long_description_are_absolute(metadata_for):
    metadata = metadata_for(URL)
    ref = f"v{skbayesnn.__version__}"
    targets = LINK.findall(metadata["readme"]["text"])
    assert len(targets) > 20
    for target in targets:
        assert target.startswith("https://")
        if target.startswith(URL):
            kind, _, path = target.removeprefix(f"{URL}/").partition(f"/{ref}/")
            assert kind == ("raw" if path.endswith(".png") else "blob")
            assert (ROOT / path).exists(), path
    assert metadata["urls"]["Source"] == URL


def _text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def test_the_package_claims_what_is_tested():
    """Versions of Python in a release, and the oldest scikit-learn."""
    package, workflows = _text("pyproject.toml"), ROOT / ".github" / "workflows"
    [oldest] = re.findall(r'"scikit-learn>=([\d.]+)"', package)
    assert f"FLOOR := scikit-learn=={oldest}\n" in _text("Makefile")
    if not workflows.exists():
        pytest.skip("the source distribution has no workflows")
    claimed = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', package)
    release = _text(".github/workflows/release.yml")
    [tested] = re.findall(r"python: \[(.*)\]", release)
    assert re.findall(r"[\d.]+", tested) == claimed
    assert f"scikit-learn=={oldest}/" in _text(".github/workflows/test.yml")


def test_citations_of_the_paper():
    keys = re.findall(r"^@\w+\{(\w+),", (ROOT / "paper.bib").read_text("utf-8"), re.M)
    cited = re.findall(r"@(\w+)", (ROOT / "paper.md").read_text("utf-8"))
    assert set(keys) == set(cited)
    assert len(keys) == len(set(keys))


def test_without_an_address_nothing_changes(metadata_for):
    metadata = metadata_for("")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert metadata["readme"]["text"] == text
    assert metadata["urls"] == {}
