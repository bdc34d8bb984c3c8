"""Runs for the tests of reports: real attempts, some with prompts, replies and messages that mean harm."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from edagym.baselines.evaluate import evaluate
from edagym.baselines.records import checksum

EVIL = '</script><script>window.hacked=1</script><img src="http://evil.example/x.png" onerror="window.hacked=1">'
KEY = "sk-proj-Canary0123456789abcdef"
HOME = "/".join(("", "home", "someone"))  # joined here: the project holds no paths of a machine
PATH = f"{HOME}/secret/weights.bin"
TASKS = ["L1/case_1", "L1/case_3", "L1/case_7"]


def lines_of(run: Path) -> list[dict[str, Any]]:
    """Return the records of a run."""
    return [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]


def write_lines(run: Path, records: list[dict[str, Any]], tail: str = "") -> None:
    """Write the records of a run, with checksums that fit."""
    run.mkdir(parents=True, exist_ok=True)
    whole = [{**r, "checksum": checksum(r)} if r.get("schema_version") == 2 else r for r in records]
    (run / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in whole) + tail)


def random_run(out: Path) -> Path:
    """Run the random policy twice on three FET tasks."""
    evaluate("random", ["FET-L1"], tasks=TASKS, attempts=2, out=out, progress=False)
    return out


def talking_run(out: Path) -> Path:
    """Run the reference on the same tasks and put a conversation beside it: a first trial given up, harmful texts."""
    evaluate("reference", ["FET-L1"], tasks=TASKS, attempts=2, out=out, progress=False, allow_privileged=True)
    settings = json.loads((out / "run.json").read_text())
    settings["options"] = {"model": {"model": "m", "api_key_env": "REPORT_TEST_KEY"}}
    (out / "run.json").write_text(json.dumps(settings))
    records = lines_of(out)
    folder = out / records[0]["folder"]
    steps = json.loads((folder / "trace.json").read_text())["steps"]
    failed = {"paper": 0, "strict": 0, "share_passed": 0.5, "failed": "min_width:gate", "messages": f"too thin {EVIL}"}
    dropped = [steps[0], {"action": {"op": "verify"}, "verdict": failed}]
    prompt = f"Draw. {EVIL} key={KEY} REPORTKEYVALUE at {PATH}"
    model = {"role": "planner", "parsed": True, "error": None, "retries": 1, "seconds": 0.5}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "cost": 0.25}
    messages = [
        {"role": "system", "content": prompt},
        {"role": "user", "content": [{"type": "text", "text": "Go on."}]},
    ]
    image = {"type": "image", "sha256": "ab" * 32, "bytes": 1234}
    notes = [
        {"n": 0, "step": 0, "kind": "model", "messages": messages, "reply": EVIL, "usage": usage, **model},
        {"n": 1, "step": 2, "kind": "restore", "text": "back to the start", "dropped": dropped},
        {"n": 2, "step": 0, "kind": "reflection", "text": f"I see {EVIL}"},
        {
            **{"n": 3, "step": 0, "kind": "model", "usage": usage, **model, "parsed": False, "error": "no JSON"},
            "messages": [*messages, {"role": "user", "content": [image]}],
            "reply": '{"edits": [{"op": "submit"}]}',
        },
    ]
    (folder / "notes.jsonl").write_text("".join(json.dumps(n) + "\n" for n in notes) + '{"half')
    for record in records:
        record |= {
            "policy": f"talker {EVIL}",
            "privileged": False,
            "unreadable": 1,
            "model_calls": 2,
            "model_retries": 1,
        }
        record |= {"tokens": {"prompt": 22, "completion": 14}, "cost": 0.5}
    lost = dict.fromkeys(("is_success", "paper_success", "strict_success", "verdict", "reward"))
    records[-1] |= {**lost, "failed": [], "metrics": {}, "error_type": "ModelError", "ended": "tool_error"}
    records[-1] |= {"error": f"server said {EVIL} {KEY} {PATH}", "infra_retries": 2}
    write_lines(out, records)
    return out


def repair_run(out: Path) -> Path:
    """Run the search on a DRC task."""
    evaluate("search", ["DRC-Essential-L1"], tasks=["Essential-L1/q1"], out=out, progress=False)
    return out


def flow_run(out: Path, source: dict[str, Any]) -> Path:
    """Write a PPA run by hand, so that no flow has to run: two attempts, one better than doing nothing."""
    records = []
    for n, nis in enumerate((1.0, -0.25)):
        passed = nis == 1.0
        where = f"attempts/PPA-Area-L1/Area-L1__q1/{n:03d}"
        messages = "" if passed else "die_area at most 186.19 um2, found 260.0"
        verdict = {"paper": int(passed), "strict": int(passed), "share_passed": 1.0 if passed else 0.9}
        verdict |= {"failed": "" if passed else "target:die_area", "messages": messages}
        steps = [
            {"action": {"op": "set_knob", "name": "CORE_UTILIZATION", "value": "41"}},
            {"action": {"op": "run"}, "verdict": verdict},
        ]
        (out / where).mkdir(parents=True)
        (out / where / "trace.json").write_text(json.dumps({"schema_version": 1, "steps": steps}))
        check = {"id": "target:die_area", "kind": "target", "passed": passed, "required": 186.19, "where": None}
        check |= {"measured": 178.0, "unit": "um2", "message": "die area", "hidden": False, "strict": False}
        success = dict.fromkeys(("is_success", "paper_success", "strict_success"), passed)
        own = {"metrics": {"nis": nis, "nis_nothing": 0.1, "die_area": 178.0, "effective_period": 200.0}, **success}
        own |= {
            "verdict": {**dict.fromkeys(("paper_success", "strict_success"), passed), "checks": [check], "metrics": {}}
        }
        own |= {"suite": "PPA-Area-L1", "task_id": "Area-L1/q1", "attempt": n, "policy": "flow", "folder": where}
        records.append({**source, **own, "task_hash": None, "failed": [] if passed else ["target:die_area"]})
    write_lines(out, records)
    return out


class Page(HTMLParser):
    """What a browser would find in a page: scripts, attributes, tables."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts: dict[str, str] = {}
        self.attributes: list[tuple[str, str, str]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.tags: list[str] = []
        self._script: str | None = None
        self._rows: list[list[str]] | None = None
        self._cell = self._hidden = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        given = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in given.items()]
        if tag == "script":
            self._script = given.get("id", "")
            self.scripts[self._script] = ""
        elif tag == "table" and "data-table" in given:
            self._rows = self.tables.setdefault(given["data-table"], [])
        elif tag == "tr" and self._rows is not None:
            self._hidden = given.get("class") in ("lv", "groups")
            if not self._hidden:
                self._rows.append([])
        elif tag in ("td", "th") and self._rows is not None and not self._hidden:
            self._rows[-1].append("")
            self._cell = True

    def handle_endtag(self, tag: str) -> None:
        """Note an end."""
        if tag == "script":
            self._script = None
        elif tag == "table":
            self._rows = None
        elif tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data: str) -> None:
        """Note a text."""
        if self._script is not None:
            self.scripts[self._script] += data
        elif self._cell and self._rows is not None:
            self._rows[-1][-1] += data


def unpack(text: str) -> Any:
    """Return what the page's script would read."""
    return json.loads(gzip.decompress(base64.b64decode(text)))


def everything(page: Page, html: str) -> str:
    """Return all texts of a page, packed ones included."""
    packed = [json.dumps(unpack(text), ensure_ascii=False) for name, text in page.scripts.items() if name]
    return "\n".join([re.sub(r"(?s)<script type=.*?</script>", "", html), *packed])
