"""docs/architecture.md says what the tree is: modules exist, and its rooms are what `make lint` checks."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}")[2].partition("\n## ")[0]


def test_every_module_of_the_page_exists():
    links = re.findall(r"\[`([\w/]+\.py)`\]\(\.\./lmsweep/([\w/]+\.py)\)", PAGE)
    assert len(links) > 40
    for name, path in links:
        assert name == path
        assert (ROOT / "lmsweep" / path).is_file(), path


def test_the_walk_enters_each_of_its_modules_once_and_has_few():
    modules = re.findall(r"\[`([\w/]+\.py)`\]", section("The walk"))
    assert len(modules) == len(set(modules)) <= 40


def test_the_table_of_rooms_is_what_the_linter_checks():
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", section("Rooms"), re.MULTILINE)
    allowed = {name: set(re.findall(r"`(\w+)`", cell)) for name, cell in rows if cell.strip() != "all"}
    packages = {path.parent.name for path in (ROOT / "lmsweep").glob("*/__init__.py")}
    assert set(allowed) | {"commands"} == packages
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    forbidden = {
        contract["source_modules"][0].removeprefix("lmsweep."): {
            module.removeprefix("lmsweep.") for module in contract["forbidden_modules"]
        }
        for contract in contracts
    }
    assert forbidden.keys() == allowed.keys()
    for name, others in forbidden.items():
        assert packages - others - {name} == allowed[name], name


def test_the_numeric_tests_of_the_makefile_exist():
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    numeric = re.search(r"^NUMERIC = (.+)$", makefile, re.MULTILINE)[1].split()
    assert len(numeric) > 3
    for name in numeric:
        path, _, test = name.partition("::")
        assert (ROOT / path).exists(), name
        assert not test or f"def {test}(" in (ROOT / path).read_text(), name
