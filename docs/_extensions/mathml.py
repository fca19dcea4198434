"""Formulas as MathML, which browsers draw without a script from a network."""

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)


def _mathml(node, **options) -> str:
    try:
        return tex2mathml(node.astext(), **options)
    except MathError as error:
        LOGGER.warning(str(error), location=node)
        return ""


def _inline(translator, node):
    translator.body.append(_mathml(node))
    raise nodes.SkipNode


def _block(translator, node):
    """The number of an equation is the end of its label: comments cite "eq. 4"."""
    translator.body.append(translator.starttag(node, "div", CLASS="math-block"))
    translator.body.append(_mathml(node, as_block=True))
    if label := node.get("label"):
        number = label.removeprefix("eq-")
        translator.body.append(f'<span class="eqno">({number})</span>')
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app):
    """Register the renderer ``mathml``."""
    renderers = {"inline_renderers": (_inline, None), "block_renderers": (_block, None)}
    app.add_html_math_renderer("mathml", **renderers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
