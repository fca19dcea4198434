"""Configuration of the documentation site: ``make docs``.

The source folder is the root of the repository, so that links between the pages, and to
``benchmarks`` and the other files outside of this folder, are the same on the site and
in a checkout. The site has no part that needs a network: formulas are MathML.
"""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS / "_extensions")]

from sphinx.util.nodes import make_refnode  # noqa: E402

import skbayesnn  # noqa: E402

project = "skbayesnn"
author = copyright = "The skbayesnn developers"
version = release = skbayesnn.__version__

extensions = [
    "example_pictures",
    "mathml",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]

# ---- pages

root_doc = "docs/index"
# Single back-ticks in docstrings of examples.
default_role = "code"
include_patterns = [
    "docs/**",
    "benchmarks/*.md",
    "reproductions/*.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
]
exclude_patterns = [
    ".*",
    "build",
    "dist",
    "docs/_*",
    "docs/gallery/_*",
    "docs/gallery/*.ipynb",
    "docs/gallery/*.py",
    "docs/gallery/sg_execution_times.rst",
    "docs/sg_execution_times.rst",
    "sg_execution_times.rst",
    "skbayesnn",
    "tests",
    "**/__pycache__",
]
templates_path = [str(DOCS / "_templates")]
# The anchors of headings are those of GitHub.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
highlight_language = "none"
suppress_warnings = ["config.cache"]

# ---- reference

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "groupwise"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
toc_object_entries_show_parents = "hide"

# ---- appearance

html_theme = "pydata_sphinx_theme"
html_title = "skbayesnn"
html_static_path = ["_static"]
html_extra_path = ["_root"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_math_renderer = "mathml"
html_theme_options = {
    "navbar_align": "left",
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
# These pages have no pages below them.
html_sidebars = {
    "docs/index": [],
    "docs/troubleshooting": [],
    "docs/which_estimator": [],
}

linkcheck_timeout = 20


def _keep_own_members(app, what, name, item, skip, options):
    """Leave out the methods that scikit-learn documents."""
    function = getattr(item, "fget", None) or item
    module = getattr(function, "__module__", None) or ""
    if what == "class" and module.startswith(("sklearn", "numpy", "torch")):
        return True
    return None


# A name such as tau_ in prose, and a bar; both have a meaning in reST.
_ATTRIBUTE = re.compile(r"(?<![\w`*:.])([A-Za-z]\w*_)(?![\w`*{[])")
_NOT_PROSE = re.compile(r"\s*(>>>|\.\.|:)")


def _escape_prose(app, what, name, item, options, lines):
    """Docstrings are plain text: quote fitted attributes, and escape bars and stars."""
    parts = re.split(r"(``.+?``)", "\n".join(lines), flags=re.DOTALL)
    for number in range(0, len(parts), 2):
        prose = parts[number].split("\n")
        for row, line in enumerate(prose):
            if not _NOT_PROSE.match(line):
                line = _ATTRIBUTE.sub(r"``\1``", line).replace("|", r"\|")
                prose[row] = re.sub(r"(?<=[ (])\*(?= |\w+\))", r"\\*", line)
        parts[number] = "\n".join(prose)
    lines[:] = "".join(parts).split("\n")


def _find_public(app, env, node, contnode):
    """Docstrings name classes and functions of ``skbayesnn`` without their module."""
    name = f"skbayesnn.{node['reftarget']}"
    domain = env.get_domain("py")
    if node["refdomain"] == "py" and name in domain.objects:
        found = domain.objects[name]
        return make_refnode(
            app.builder, node["refdoc"], found.docname, found.node_id, contnode
        )
    return None


# ---- gallery

sphinx_gallery_conf = {
    "examples_dirs": ["examples"],
    "gallery_dirs": ["docs/gallery"],
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"\b_\w+\.py$",
    # The extension example_pictures runs the examples, each in a process.
    "plot_gallery": False,
    "download_all_examples": False,
    "first_notebook_cell": (
        "# Run this in a clone of the repository. Pictures are in examples/output.\n"
        'import sys\n\nsys.path.insert(0, "examples")'
    ),
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,
    "within_subsection_order": "FileNameSortKey",
}


def _link_to_gallery(app, docname, source):
    """Links to the scripts of examples lead to their pages in the gallery."""
    script = r"\]\((?:\.\./)*examples/(\w+)\.py\)"
    source[0] = re.sub(script, r"](/docs/gallery/\1.rst)", source[0])


def setup(app):
    """Connect the hooks of this file."""
    app.connect("source-read", _link_to_gallery)
    app.connect("autodoc-skip-member", _keep_own_members)
    app.connect("missing-reference", _find_public)
    # After numpydoc, which reads the sections.
    app.connect("autodoc-process-docstring", _escape_prose, priority=900)
