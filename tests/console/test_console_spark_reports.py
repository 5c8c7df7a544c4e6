"""Reports of the Spark jobs: listed by severity and time, damaged ones named, nothing outside their folder read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from test_console_server import page
from trio.testing import MockClock

from understudy.console import spark_reports
from understudy.console.report_files import Found, ReportError, ReportFiles, ReportFolder, Stamp
from understudy.console.spark_reports import Known, Listing, look, one
from understudy.spark_tools.report import Report, Table, as_json

NOBODY = {"Authorization": ""}


def write(folder: Path, verdict: str = "Agree: all of it", *, at: int = 1_000, **more: Any) -> Path:
    """Write a report as the jobs do, with a time in seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "report.json"
    file.write_text(as_json(Report(f"Offsets of {folder.name}", verdict, **more)))
    os.utime(file, (at, at))
    return file


def names(listing: Listing) -> list[str]:
    return [row["name"] for row in listing.to_json()["rows"]]


def test_the_worst_come_first_and_of_equal_ones_the_newest(tmp_path: Path) -> None:
    write(tmp_path, "Agree: all of it", at=9)
    write(tmp_path / "old", "Differ: 1 of 2", at=1)
    write(tmp_path / "new", "Differ: 2 of 2", at=2)
    write(tmp_path / "set__a" / "deep" / "er", "Damaged input: 0 of 2", at=1)
    write(tmp_path / "odd", "Nobody knows", at=3)
    write(tmp_path / "set__a" / "deep" / "er" / "est", "Damaged input: too deep")
    write(tmp_path / "evidence.parquet", "Damaged input: not looked at")
    (tmp_path / "plan.json").write_text("{}")
    listing = look(ReportFolder(str(tmp_path)), {})
    assert ["set__a/deep/er", "new", "old", "odd", "."] == names(listing)
    row = listing.to_json()["rows"][0]
    assert ("damaged", "Offsets of er", 1_000) == (row["severity"], row["title"], row["writtenAt"])
    assert [] == listing.to_json()["missing"]


DAMAGED = [
    (b"", "a/report.json is damaged: "),
    (b'{"title": "x", "verd', "a/report.json is damaged: "),
    (b"\xff\xfe\x00", "a/report.json is damaged: "),
    (b"[" * 100_000, "a/report.json is damaged: "),
    (b"[1]", "a/report.json is no report of a Spark job"),
    (b'{"title": "x"}', "a/report.json is no report of a Spark job"),
    (b'{"title": "x", "verdict": 1}', "a/report.json is no report of a Spark job"),
]


@pytest.mark.parametrize(("content", "told"), DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_named_in_one_line_and_the_others_are_shown(
    content: bytes, told: str, tmp_path: Path
) -> None:
    write(tmp_path / "a").write_bytes(content)
    write(tmp_path / "b")
    listing = look(ReportFolder(str(tmp_path)), {})
    (line,) = listing.to_json()["missing"]
    assert line.startswith(told)
    assert "\n" not in line
    assert ["b"] == names(listing)
    with pytest.raises(ReportError) as refused:
        one(ReportFolder(str(tmp_path)), "a")
    assert line == str(refused.value)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_reports, "MOST_BYTES", 100)
    write(tmp_path / "a", "Differ: " + "x" * 100)
    (line,) = look(ReportFolder(str(tmp_path)), {}).to_json()["missing"]
    assert "the console reads 100 at most" in line
    with pytest.raises(ReportError, match="the console reads 100 at most"):
        one(ReportFolder(str(tmp_path)), "a")


def test_a_report_is_shown_within_bounds_and_as_a_browser_can_have_it(tmp_path: Path) -> None:
    row = ["billing", 3, 1 << 60, 0.5, None, True, ["a", "b"]]
    rows = [[*row, "x" * 5_000], *[[*row, ""]] * 2_999]
    table = Table("Offsets", ("group", "queue", "a", "b", "c", "d", "e", "f"), rows, total=9_000)
    write(tmp_path / "a", "Differ: 1", facts={"stores": ["a", "b"]}, tables=[table])
    report = one(ReportFolder(str(tmp_path)), "a")
    (shown,) = report["tables"]
    assert (2_000, 9_000) == (len(shown["rows"]), shown["total"])
    *cells, long = shown["rows"][0]
    assert ["billing", 3, str(1 << 60), 0.5, None, "True", "a, b"] == cells
    assert 2_000 == len(long)
    assert [["stores", "a, b"]] == report["facts"]
    json.dumps(report, allow_nan=False)


@pytest.mark.parametrize(
    "report",
    [
        {"facts": [], "tables": {}}, {"facts": None, "tables": [1, {}, {"columns": 1, "rows": "x", "total": "y"}]},
        {"tables": [{"title": 1, "columns": ["a"], "rows": [1, [1, 2], []]}]},
    ],
)  # fmt: skip
def test_a_report_of_an_odd_form_is_shown_as_far_as_it_goes(report: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps({"title": "x", "verdict": "Agree", **report}))
    assert "agree" == one(ReportFolder(str(tmp_path)), ".")["severity"]


class TestOutside:
    """Only what lies in the folder is read, whatever is named or linked there."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        write(tmp_path / "secret", "Damaged input: not to be seen")
        folder = tmp_path / "reports"
        write(folder / "a")
        (folder / "link").symlink_to(tmp_path / "secret")
        (folder / "file").mkdir()
        (folder / "file" / "report.json").symlink_to(tmp_path / "secret" / "report.json")
        (folder / "pipe").mkdir()
        os.mkfifo(folder / "pipe" / "report.json")
        return folder

    def test_links_and_pipes_are_not_listed(self, folder: Path) -> None:
        listing = look(ReportFolder(str(folder)), {})
        assert ["a"] == names(listing)
        assert [] == listing.to_json()["missing"]

    @pytest.mark.parametrize(
        "name",
        ["", "..", "../secret", "a/../../secret", "a/..", "/etc", "//", "a/", "link", "file", "pipe", "a\0", "nothing",
         "a/report.json", "./a", "x" * 5_000, "é\ud800"],
    )  # fmt: skip
    def test_nothing_else_can_be_named(self, name: str, folder: Path) -> None:
        with pytest.raises(ReportError) as refused:
            one(ReportFolder(str(folder)), name)
        assert "not to be seen" not in str(refused.value)

    def test_the_folder_itself_may_be_a_link(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "newest").symlink_to(folder)
        assert ["a"] == names(look(ReportFolder(str(tmp_path / "newest")), {}))


class TestBounds:
    def test_only_so_many_bytes_are_read_in_a_look_and_the_rest_in_the_next(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sizes = [write(tmp_path / f"r{number}", at=number).stat().st_size for number in range(4)]
        monkeypatch.setattr(spark_reports, "MOST_BYTES_READ", 2 * max(sizes))
        first = look(ReportFolder(str(tmp_path)), {})
        assert (["r3", "r2"], 2) == (names(first), first.unread)
        second = look(ReportFolder(str(tmp_path)), first.known)
        assert (["r3", "r2", "r1", "r0"], 0) == (names(second), second.unread)

    def test_what_nobody_changed_is_not_read_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path / "a")
        write(tmp_path / "b").write_text("{")
        before = look(ReportFolder(str(tmp_path)), {})
        write(tmp_path / "a", "Differ: now", at=2_000)
        read: list[str] = []
        known = spark_reports._known

        def counted(files: ReportFiles, name: str, stamp: Stamp) -> Known:
            read.append(name)
            return known(files, name, stamp)

        monkeypatch.setattr(spark_reports, "_known", counted)
        after = look(ReportFolder(str(tmp_path)), before.known)
        assert ["a"] == read
        assert ["differ"] == [row["severity"] for row in after.to_json()["rows"]]

    def test_reports_and_names_have_a_number(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(5):
            write(tmp_path / f"r{number}", at=number)
        monkeypatch.setattr(spark_reports, "MOST_REPORTS", 2)
        listing = look(ReportFolder(str(tmp_path)), {})
        assert (["r4", "r3"], 3) == (names(listing), listing.left_out)
        monkeypatch.setattr(spark_reports, "MOST_NAMES", 4)
        assert ["it has more than 4 names; the rest was not looked at"] == look(
            ReportFolder(str(tmp_path)), {}
        ).to_json()["missing"]

    def test_a_folder_that_went_away_is_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(ReportError, match="gone cannot be read: No such file or directory"):
            look(ReportFolder(str(tmp_path / "gone")), {})


class FailingFiles:
    """Files of which only the first can be read: then the disk fails."""

    def __init__(self) -> None:
        self._folder = {"a": b'{"title": "A", "verdict": "Agree"}', "b": b""}

    def find(self, most_names: int) -> Found:
        return Found({name: Stamp(1, len(data), 1) for name, data in self._folder.items()})

    def read(self, name: str, most_bytes: int) -> tuple[bytes, Stamp]:
        if name == "b":
            raise ReportError("b/report.json cannot be read: Input/output error")
        return self._folder[name], Stamp(1, 1, 1)


def test_what_a_failing_disk_does_not_give_is_named_and_the_rest_is_shown() -> None:
    listing = look(FailingFiles(), {})
    assert (["a"], ["b/report.json cannot be read: Input/output error"]) == (
        names(listing),
        listing.to_json()["missing"],
    )


async def test_pages_show_them_to_who_may_see_the_cluster(tmp_path: Path, autojump_clock: MockClock) -> None:
    write(tmp_path / "a", "Differ: 1 of 2")

    async with page(spark_reports=ReportFolder(str(tmp_path))) as browser:
        for path in ("/api/reports", "/api/report?name=a"):
            assert 401 == (await browser.ask(path, NOBODY)).status
        found = (await browser.ask("/api/reports")).json
        assert (True, ["a"]) == (found["configured"], [row["name"] for row in found["rows"]])
        assert "Offsets of a" == (await browser.ask("/api/report?name=a")).json["title"]
        for name in ("..%2f..", "%00", "%2fetc", "b"):
            reply = await browser.ask(f"/api/report?name={name}")
            assert (422, {"error": "there is no such report"}) == (reply.status, reply.json)
    async with page() as browser:
        found = (await browser.ask("/api/reports")).json
        assert (False, []) == (found["configured"], found["rows"])
        reply = await browser.ask("/api/report?name=a")
        assert (422, True) == (reply.status, "without a folder of reports" in reply.json["error"])
