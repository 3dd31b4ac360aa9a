"""Sphinx's settings: pages in Markdown, the reference from docstrings, formulas as MathML, nothing from a network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import stability
from stability.reports.cli import COMMANDS

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gallery

project = "stability"
html_show_copyright = False
author = "the stability developers"
release = version = "0.1.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["figures"]
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring, napoleon_numpy_docstring = True, False
napoleon_use_ivar = True
nitpicky = False  # types of numpy and torch are documented elsewhere
html_theme = "furo"
html_title = f"stability {stability.__version__}"
html_extra_path = [str(gallery.FOLDER)] if gallery.FOLDER.is_dir() else []
html_static_path, html_css_files = ["_static"], ["site.css"]
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


class Commands(SphinxDirective):
    """The help of every command, as the program prints it."""

    def run(self) -> list[nodes.Node]:
        """A section a command."""
        return [section for name in COMMANDS for section in self._section(name)]

    def _section(self, name: str) -> list[nodes.Node]:
        call = "import sys; from stability.reports.cli import main; sys.argv[0] = 'stability'; sys.exit(main())"
        plain = {**os.environ, "COLUMNS": "90", "NO_COLOR": "1", "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}
        asked = [sys.executable, "-c", call, name, "--help"]
        printed = subprocess.run(asked, env=plain, capture_output=True, text=True, check=True).stdout
        section = nodes.section(ids=[f"command-{name}"], names=[name])
        section += nodes.title(text=f"stability {name}")
        text = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
        section += nodes.literal_block(text, text, language="text")
        return [section]


class Gallery(SphinxDirective):
    """Reports of the gallery, with pictures and links where they were made."""

    def run(self) -> list[nodes.Node]:
        """Return their HTML."""
        return [nodes.raw("", gallery.entries(), format="html")]


def setup(app: Sphinx) -> None:
    """Formulas become MathML, which browsers draw by themselves: no page asks anybody for a script."""
    app.add_directive("commands", Commands)
    app.add_directive("gallery", Gallery)
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))


html_math_renderer = "mathml"
