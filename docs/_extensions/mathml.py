"""Formulas as MathML, which browsers draw without a script from a network."""

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util.math import get_node_equation_number


def _inline(translator, node):
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block(translator, node):
    translator.body.append(translator.starttag(node, "div", CLASS="math-block"))
    translator.body.append(tex2mathml(node.astext(), as_block=True))
    if node["number"]:
        number = get_node_equation_number(translator, node)
        translator.body.append(f'<span class="eqno">({number})')
        translator.add_permalink_ref(node, "Link to this equation")
        translator.body.append("</span>")
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app):
    """Register the renderer ``mathml``."""
    renderers = {"inline_renderers": (_inline, None), "block_renderers": (_block, None)}
    app.add_html_math_renderer("mathml", **renderers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
