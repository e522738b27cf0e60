"""What the documentation site is built of beside docs/: pages of the checkout, references made from the code.

MkDocs calls these functions (`hooks` in mkdocs.yml). Nothing they make is kept in the checkout, so that no
reference can differ from the code: commands come from the command line itself, recipe keys from the settings
that check them, the Python API from the modules, results from `results/`.
"""

import html
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

import jupytext
import latex2mathml.converter
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.cli import get_docs_for_click

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "fairshot"
PAGES = ("*.md", "docs/*.md", "results/**/*.md", "examples/*.md", "examples/*.ipynb")
LINK = re.compile(r"(?P<open>!?\[[^\[\]]*\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
IMAGE = re.compile(r'(?<=<img src=")docs/(?=[^"]+")')  # of the README, the only page with HTML
MATH = re.compile(r'<(span|div) class="arithmatex">(?:\\\((.*?)\\\)|\\\[(.*?)\\\])</\1>', re.DOTALL)
ICON = PACKAGE / "server" / "static" / "icon.svg"
NOT_IN_CODE = re.compile(r"(`[^`]*`)|<")
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation: a folder stands for its generated pages."""
    config.nav = _navigation(config.nav, [*_documents(), *_generated()])
    return config


def _navigation(entries: Any, pages: list[str]) -> Any:
    found = []
    for entry in entries:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            found.append({title: _navigation(target, pages)})
        elif target.endswith("/"):
            found.append({title: [page for page in pages if page.startswith(target)]})
        else:
            found.append(entry)
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs/, and those made from the code."""
    for page, source in _documents().items():
        if source.parent != Path("docs"):
            files.append(File.generated(config, page, content=_markdown(ROOT / source)))
    for page, text in _generated().items():
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "assets/icon.svg", abs_src_path=str(ICON)))
    return files


@cache
def _documents() -> dict[str, Path]:
    """Return the Markdown files of the checkout by the page of the site that each becomes."""
    found = [path for pattern in PAGES for path in ROOT.glob(pattern)]
    files = [path.relative_to(ROOT) for path in found]
    return {_page_of(file.as_posix()): file for file in files}


def _page_of(path: str) -> str:
    """Return the page of the site that a file of the checkout becomes."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return re.sub(r"(^|/)README\.md$", r"\1index.md", re.sub(r"\.ipynb$", ".md", path))


def _markdown(path: Path) -> str:
    """Return a page or a notebook as Markdown."""
    text = path.read_text(encoding="utf-8")
    return jupytext.writes(jupytext.reads(text, "ipynb"), "md") if path.suffix == ".ipynb" else text


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links between files of the checkout to their pages; what has no page keeps its text alone."""
    here = page.file.src_uri
    if here not in (documents := _documents()):
        return markdown
    folder = documents[here].parent.as_posix()

    def pointed(link: re.Match[str]) -> str:
        target = link["target"]
        if ":" in target:
            return link[0]
        path = normpath(f"{folder}/{target}")
        there = _page_of(path)
        if there in documents or path.startswith("docs/"):
            return f"{link['open']}{relpath(there, str(PurePosixPath(here).parent))}{link['anchor'] or ''})"
        return link["open"][1:-2] if (ROOT / path).exists() else link[0]

    return IMAGE.sub("", LINK.sub(pointed, markdown))


def on_page_content(text: str, **_: Any) -> str:
    """Turn formulas into MathML, which browsers show without a script; keep a number with its deviation."""
    return MATH.sub(_mathml, text).replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def _mathml(formula: re.Match[str]) -> str:
    if formula[2] is not None:
        return latex2mathml.converter.convert(html.unescape(formula[2]), display="inline")
    block = latex2mathml.converter.convert(html.unescape(formula[3]), display="block")
    return f'<div class="formula">{block}</div>'  # which scrolls on a narrow screen


@cache
def _generated() -> dict[str, str]:
    """Return the pages made from the code by their paths."""
    return {"reference/commands.md": commands(), "reference/recipes.md": recipes(), **dict(api())}


def commands() -> str:
    """Write the reference of the command line, from the command line."""
    from fairshot.cli import app

    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="fairshot"), name="fairshot")
    text = re.sub(
        r"\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", text
    )  # cut short there, and in the contents anyway
    prose = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    prose[::2] = [NOT_IN_CODE.sub(lambda found: found[1] or "&lt;", part) for part in prose[::2]]
    return "".join(prose).replace("# `fairshot`", "# Commands", 1)


def recipes() -> str:
    """Write the reference of all keys of a recipe, from the settings that check them."""
    from fairshot.methods import methods
    from fairshot.recipes.recipe import SECTIONS, Recipe

    parts = [
        "# Keys of a recipe\n\n`fairshot recipe show RECIPE` prints one recipe with all its values. "
        "`--set training.epochs=10` changes a key, and so does a YAML file of your own. A value that cannot "
        "be used is refused before anything runs.\n\n"
        "| key | type | default | meaning |\n|---|---|---|---|\n"
        "| `seed` | integer ≥ 0 | `0` | Seed of everything random. |\n"
    ]
    kinds = Recipe.__annotations__
    for section in SECTIONS:
        settings = _resolved(kinds[section])
        parts.append(f"\n## {section}\n\n{_first_line(settings)}\n\n{_table(settings, section)}")
    for name, method in methods().items():
        parts.append(
            f"\n## method: {name}\n\n{_sentence(method.card.summary)}\n\n{_table(method.Settings, 'method')}"
        )
    return "".join(parts)


def _resolved(name: Any) -> Any:
    from fairshot.recipes import recipe

    return getattr(recipe, name) if isinstance(name, str) else name


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").partition("\n")[0]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _table(settings: Any, section: str) -> str:
    schema = settings.model_json_schema()
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, field in schema["properties"].items():
        default = f"`{_yaml(field['default'])}`" if "default" in field else "(to be given)"
        meaning = field.get("description", "").replace("|", "\\|")
        rows.append(f"| `{section}.{key}` | {_type(field, schema)} | {default} | {meaning} |")
    return "\n".join(rows) + "\n"


def _yaml(value: Any) -> str:
    import yaml

    return yaml.safe_dump([value], default_flow_style=True, width=1000).strip()[1:-1]


def _type(field: dict[str, Any], schema: dict[str, Any]) -> str:
    """Say in words what values a key may have."""
    if "$ref" in field:
        return _type(schema["$defs"][field["$ref"].rpartition("/")[2]], schema)
    if "anyOf" in field:
        return " or ".join(_type(each, schema) for each in field["anyOf"])
    if "enum" in field or "const" in field:
        return " or ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    if "prefixItems" in field:
        return "[" + ", ".join(_type(each, schema) for each in field["prefixItems"]) + "]"
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}), schema)}"
    bounds = "".join(f" {sign} {field[name]}" for name, sign in BOUNDS.items() if name in field)
    return field.get("type", "any value") + bounds


def api() -> Iterator[tuple[str, str]]:
    """Write the pages of the Python API: what `fairshot` offers, then each room, module by module."""
    import fairshot

    names = "".join(f"\n::: fairshot.{name}\n" for name in fairshot.__all__)
    about = "What `from fairshot import ...` offers. Estimators share the parameters and methods of "
    shared = "[MethodEstimator][fairshot.estimators.estimator.MethodEstimator]."
    yield "reference/api/index.md", f"# fairshot\n\n{about}{shared}\n{names}"
    for room in sorted(path.parent for path in PACKAGE.glob("*/__init__.py")):
        if room.name == "cli":  # described as commands
            continue
        modules = [
            f"fairshot.{'.'.join(path.relative_to(PACKAGE).with_suffix('').parts)}"
            for path in sorted(room.rglob("*.py"))
            if not path.name.startswith("_")
        ]
        text = "".join(f"\n::: {name}\n" for name in modules)
        about = "    options: {members: false, show_root_heading: false}\n"
        yield (
            f"reference/api/{room.name}.md",
            f"# fairshot.{room.name}\n\n::: fairshot.{room.name}\n{about}{text}",
        )
