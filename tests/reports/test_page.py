"""The page says what the files say, is complete in itself, and says what is missing with what makes it."""

import base64
import csv
import io
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.evaluation.made_audits import every_kind
from tests.reports.made_folders import (
    CHARGES,
    audit_folder,
    certified,
    leaking,
    run_folder,
)
from veil.reports.blocks import ReportError
from veil.reports.page import code, html, refuse_other_files, table, tight, write
from veil.reports.run_sections import charges_table
from veil.reports.sources import gather
from veil.sharing.account import read_account
from veil.sharing.ledger import Ledger

SVG = "{http://www.w3.org/2000/svg}svg"
ANCHORS = ["threat", "beliefs", "attackers", "scenarios", "use", "cost", "ledger", "frontier", "training"]
ANCHORS += ["settings", "words"]


class Page(HTMLParser):
    """Tags in their order, and the text between them."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(source)
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def drawn(image):
    """The drawing of an <img>."""
    kind, _, content = image["src"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    return ElementTree.fromstring(base64.b64decode(content))


@pytest.fixture(scope="module")
def page(source):
    return Page(source)


def test_every_section_is_there_and_every_link_leads_to_one(page):
    links = [attrs["href"] for attrs in page.all("a")]
    assert links == [f"#{anchor}" for anchor in ANCHORS]
    ids = [attrs["id"] for attrs in page.all("section")]
    assert ids == ["verdict", *ANCHORS]


def test_the_page_needs_no_network_and_no_script(page, source):
    assert not page.all("script") and not page.all("iframe")
    for tag, attrs in page.tags:
        for name in ("src", "href"):
            assert not attrs.get(name, "").startswith(("http", "//", "file")), (tag, attrs)
    assert "@import" not in source and "url(" not in source


def test_every_drawing_is_an_svg_with_words_for_those_who_cannot_see_it(page):
    images = page.all("img")
    assert len(images) == 2 * 3 + 4  # beliefs, leakage, attackers of both; use, ledger, frontier, training
    for image in images:
        assert len(image["alt"]) > 20
        root = drawn(image)
        assert root.tag == SVG and float(root.attrib["viewBox"].split()[2]) == pytest.approx(5.4 * 72)


def test_the_verdict_comes_first_in_plain_words(page):
    low, high = certified().interval
    best = max(row.accuracy.value for row in certified().attacks if row.role == "attack")
    known = "An adversary who knows everything but the driving style"
    said = f"{known} names the right driver {100 * best:.0f} % of the time"
    assert page.text.index(said) < page.text.index("Threat model")
    ends = (
        f"at least {np.floor(1e3 * low) / 1e3:.3f} and at most {np.ceil(1e3 * high) / 1e3:.3f} of the 1.386"
    )
    assert ends in page.text
    scenario, cost = (
        "Worst scenario of 2: secrets between, where “learned” gains",
        "The cost changes by +1.30 %",
    )
    assert page.text.index(ends) < page.text.index(scenario) < page.text.rindex(cost)
    least = leaking().interval[0]
    assert f"at least {np.floor(1e3 * least) / 1e3:.3f} of the 1.386 nats" in page.text


def test_tables_hold_the_numbers_of_the_audit(page):
    text = page.text.replace("\u00a0", " ")
    for made in (certified(), leaking()):
        for row in made.attacks:
            assert f"{row.name} " in text
            assert f"{row.lower.value:.3f} ± {row.lower.error:.3f}".replace("-", "−") in text
    for row in certified().attacks:
        ends = [f"{100 * end:.0f}" for end in (row.accuracy.low, row.accuracy.high)]
        assert f"{100 * row.accuracy.value:.0f} % ({ends[0]} to {ends[1]})" in text
    for scenario in certified().scenarios:
        assert scenario.name in text
    worst = certified().worst_scenario
    assert worst is not None
    gained = np.floor(1e3 * worst.low) / 1e3
    assert (
        f"scenario is “secrets between”: the attacker “learned” learns at least {gained:.3f} of 1.386" in text
    )
    assert "0.610 ± 0.002" in text and "+1.30 % ± 0.20" in text
    spent = np.ceil(1e3 * sum(CHARGES) - 1e-7) / 1e3
    assert f"{spent:.3f} nats were charged of a budget of 0.1." in text
    assert "holds over all 5 entries" in text and "off by 0.25 m/s in speed, 0.25 m in spacing" in text
    assert "40 updates took 1:20 min" in text and "the one after update 20" in text


def test_names_are_escaped(tmp_path):
    folder, name = audit_folder(tmp_path / "a"), "<script>alert('&')</script>"
    source = html(gather([folder], names=[name], title=name))
    assert "<script>" not in source and Page(source).text.count(name) >= 2


def test_what_is_missing_is_said_with_what_makes_it(tmp_path):
    folder = run_folder(tmp_path / "learned", audited=False, shared=False)
    source = html(gather([folder]))
    text = Page(source).text
    assert f"veil audit platoon --policy {folder}" in text and "Not audited" in text
    assert f"veil share {folder} --resolution 0.01 --secret-file" in text and "veil frontier platoon" in text
    only = Page(html(gather([audit_folder(tmp_path / "noise")])))
    assert (
        "veil audit platoon --policy POLICY --scenarios --again" in only.text
        and "veil train platoon" in only.text
    )
    filled = re.findall(r"<h2[^>]*>.*?</h2>\s*<p class=\"lead\">.*?</p>\s*(\S+)", source)
    assert filled and not any(start.startswith("</section") for start in filled)


@pytest.mark.parametrize("name", every_kind())
def test_every_verdict_makes_a_page(tmp_path, name):
    page = Page(html(gather([audit_folder(tmp_path / "a", every_kind()[name])])))
    assert all(drawn(image).tag == SVG for image in page.all("img")) and page.all("article")


def test_files_say_what_the_audit_says_and_twice_the_same(material, source, tmp_path):
    paths = write(material, tmp_path / "out" / "report.html")
    first = [path.read_bytes() for path in paths]
    assert [path.name for path in paths] == ["report.html", "report.json", "report.csv"]
    assert first[0].decode() == source
    content = json.loads(first[1])
    assert content["unit"] == "nats" and [run["name"] for run in content["runs"]] == ["true data", "learned"]
    for run, made in zip(content["runs"], (leaking(), certified()), strict=True):
        assert (run["numbers"]["leakage"]["low"], run["numbers"]["leakage"]["high"]) == made.interval
        assert run["verdict"] == made.verdict.name and len(run["attacks"]) == len(made.attacks)
        assert run["numbers"]["cost_change"]["value"] == 1.3
    learned = content["runs"][1]
    assert learned["numbers"]["charged"]["value"] == pytest.approx(sum(CHARGES))
    assert learned["training"]["best"] == 20 and content["frontier"]["floor"] == 0.099
    rows = list(csv.DictReader(io.StringIO(first[2].decode())))
    table = {(row["run"], row["name"]): row for row in rows}
    for run in content["runs"]:
        for name, number in run["numbers"].items():
            row = table.pop((run["name"], name))
            for key in ("value", "low", "high"):
                assert row[key] == ("" if number[key] is None else repr(number[key]))
    assert not table


def test_a_number_stays_with_its_error_and_commands_are_set_apart():
    assert (
        tight("0.1 ± 0.02 m and 59 % (53 to 65)")
        == "0.1\u00a0±\u00a00.02 m and 59\u00a0%\u00a0(53\u00a0to\u00a065)"
    )
    assert str(code("run `veil <x>` & look")) == "run <code>veil &lt;x&gt;</code> &amp; look"


@pytest.mark.parametrize("content", ["2", "[0.15, 10.0]", '{"secret": 2}', "not JSON"])
def test_a_file_beside_the_page_that_is_no_report_is_not_replaced(tmp_path, content):
    """Such as the secret of a stream, in `house.json` beside `house.html`."""
    (tmp_path / "house.json").write_text(content)
    with pytest.raises(ReportError, match="another --out"):
        refuse_other_files(tmp_path / "house.html")
    assert (tmp_path / "house.json").read_text() == content


def test_a_recording_beside_the_page_is_not_replaced_and_an_older_table_is(tmp_path):
    (tmp_path / "house.csv").write_text("Time,Room temperature\n2026-01-05 00:00,20.0\n")
    with pytest.raises(ReportError, match=r"house.csv is not of a report.*another --out"):
        refuse_other_files(tmp_path / "house.html")
    (tmp_path / "house.csv").write_text(table(gather([audit_folder(tmp_path / "true")])))
    refuse_other_files(tmp_path / "house.html")


def test_a_report_replaces_an_older_one(tmp_path):
    older = {"title": "", "unit": "nats", "runs": [], "frontier": None, "version": "0.1.0"}
    (tmp_path / "house.json").write_text(json.dumps(older))
    refuse_other_files(tmp_path / "house.html")
    refuse_other_files(tmp_path / "new.html")


def test_a_ledger_shows_what_its_alarm_was_charged(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, {"system": "platoon", "seed": 3, "budget": 0.1, "alarm": {"charge": 0.0032}}) as book:
        book.append({"step": 1, "charge": 1e-6, "total": 0.003201, "decision": "released"})
    assert [(row[0], row[2], row[3]) for row in charges_table(read_account(path)).rows] == [
        ("alarm", "", "0.004"),
        ("released", "1", "less than 0.001"),
    ]
