"""Metadata of the package that depend on the address of its repository.

The address is the environment variable ``SKBAYESNN_URL``, which the release workflow
sets. With it, the package has ``[project.urls]``, and the links and pictures of its
long description are absolute: a package index has no other files of the repository.
"""

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?:|#)([^)]+)\)")


def absolute_links(text: str, url: str, ref: str) -> str:
    """Markdown with absolute links to files of the repository.

    Parameters
    ----------
    text : str
    url : str
        Address of the repository.
    ref : str
        Branch or tag.
    """

    def absolute(match: re.Match) -> str:
        bang, label, path = match.groups()
        return f"{bang}{label}({url}/{'raw' if bang else 'blob'}/{ref}/{path})"

    return LINK.sub(absolute, text)


class CustomMetadataHook(MetadataHookInterface):
    """Adds ``urls`` and ``readme``."""

    def update(self, metadata: dict) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        url = os.environ.get("SKBAYESNN_URL", "").rstrip("/")
        metadata["urls"] = {}
        if url:
            ref = f"v{metadata['version']}"
            text = absolute_links(text, url, ref)
            metadata["urls"] = {
                "Source": url,
                "Issues": f"{url}/issues",
                "Changelog": f"{url}/blob/{ref}/CHANGELOG.md",
                "Documentation": f"{url}/blob/{ref}/docs/index.md",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
