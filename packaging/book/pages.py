"""Prepares the pages of the book, and prints the configuration of mkdocs.

    pages.py ROOT STAGE VERSION

STAGE/pages has the documents, STAGE/man the man pages. Other files of ROOT that documents link to are
copied as they are. The order is that of the tables of
docs/README.md: a heading is a part of the book, the first link of a row is a page.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

CONTENTS = "docs/README.md"
FIRST = "README.md"
# The part that the pages of commands and files follow.
REFERENCE = "Reference"


def man_pages(stage: Path, version: str) -> list[str]:
    """Writes a page for each man page. Returns their paths below `pages`, commands first."""
    made = stage / "pages" / "man"
    made.mkdir()
    names = {page.name for page in (stage / "man").iterdir()}

    def link(found: re.Match) -> str:
        name = f"{found[1]}.{found[2]}"
        return f'<a href="{name}.html">{found[0]}</a>' if name in names else found[0]

    for name in names:
        text = (stage / "man" / name).read_text().replace("@VERSION@", version)
        # HTML in a document of Markdown ends at a blank line.
        html = subprocess.run(
            ["mandoc", "-T", "html", "-O", "fragment"],
            input=text, capture_output=True, text=True, check=True,
        ).stdout
        body = html[html.index('<div class="manual-text">') : html.index('<table class="foot">')]
        body = re.sub(r"<(/?)h2\b", r"<\1h3", body)
        body = re.sub(r"<(/?)h1\b", r"<\1h2", body)
        body = re.sub(r"\b([a-z][a-z0-9._-]*)\(([1-8])\)", link, body)
        stem, section = name.rsplit(".", 1)
        (made / f"{name}.md").write_text(f"# {stem}({section})\n\n{body.strip()}\n")
    in_order = sorted(names, key=lambda name: (name.rsplit(".", 1)[1] != "1", name))
    return [f"man/{name}.md" for name in in_order]


def contents(text: str) -> list[tuple[str, list[str]]]:
    """The parts of the book: the title of each, and the paths of its pages."""
    parts: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("## "):
            parts.append((line[3:], []))
        elif parts and line.startswith("|"):
            for found in re.findall(r"\]\(([^)#]+\.md)\)", line.split("|")[1]):
                path = str(PurePosixPath(CONTENTS).parent / found)
                path = str(PurePosixPath(*normal(path)))
                listed = {FIRST} | {page for _, pages in parts for page in pages}
                if path not in listed:
                    parts[-1][1].append(path)
    return parts


def normal(path: str) -> list[str]:
    """The components of a path, without `..`."""
    components: list[str] = []
    for component in PurePosixPath(path).parts:
        if component == "..":
            components.pop()
        else:
            components.append(component)
    return components


def scenarios(pages: Path) -> None:
    """A page that lists the scenarios of the simulator, with the first comment of each."""
    lines = ["# Scenarios", "", "Run one with `srd sim run FILE`.", "", "| file | contents |",
             "|---|---|"]
    for path in sorted((pages / "scenarios").rglob("*.toml")):
        comments = []
        for line in path.read_text().splitlines():
            if not line.startswith("#"):
                break
            comments.append(line.lstrip("# "))
        name = path.relative_to(pages / "scenarios")
        about = " ".join(comments).replace("|", "\\|")
        lines.append(f"| [{name}]({name}) | {about} |")
    (pages / "scenarios" / "index.md").write_text("\n".join(lines) + "\n")


def copy_linked(root: Path, pages: Path) -> None:
    """Copies files that are no pages, and that a document links to."""
    for page in list(pages.rglob("*.md")):
        for link in re.findall(r"\]\(([^):#\s]+)", page.read_text()):
            path = PurePosixPath(page.relative_to(pages).parent / link)
            copy = pages.joinpath(*normal(str(path)))
            original = root / copy.relative_to(pages)
            if original.is_file() and not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(original, copy)


def main() -> None:
    root, stage, version = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    pages = stage / "pages"
    copy_linked(root, pages)
    scenarios(pages)
    man = man_pages(stage, version)
    parts = contents((pages / CONTENTS).read_text())
    nav: list = [{"Contents": CONTENTS}]
    for title, of in parts:
        items: list = [page for page in of]
        if title == REFERENCE:
            items += [{"Commands and files": man}, {"Scenarios": "scenarios/index.md"}]
        nav.append({title: items})
    # JSON is YAML.
    print(json.dumps({
        "site_name": f"OpenSRD {version}",
        "docs_dir": str(pages),
        "nav": [{"OpenSRD": FIRST}, *(part for part in nav if list(part.values())[0])],
        "theme": {
            "name": "material",
            # Nothing is loaded from other servers.
            "font": False,
            "features": ["navigation.tabs", "navigation.top", "search.highlight",
                         "content.code.copy"],
            "palette": [
                {"media": f"(prefers-color-scheme: {scheme})", "scheme": name,
                 "toggle": {"icon": icon, "name": toggle}}
                for scheme, name, icon, toggle in (
                    ("light", "default", "material/weather-night", "Dark"),
                    ("dark", "slate", "material/weather-sunny", "Light"),
                )
            ],
        },
        "use_directory_urls": False,
        "markdown_extensions": ["tables", "pymdownx.highlight", "pymdownx.superfences",
                                {"toc": {"permalink": True}}],
        "plugins": ["search"],
        "validation": {
            "nav": {"omitted_files": "warn", "not_found": "warn"},
            "links": {"not_found": "warn", "anchors": "warn", "unrecognized_links": "warn"},
        },
    }, indent=1))


main()
