"""The read-only command line: what each command prints, compared with the real tool; what is refused and why."""

from __future__ import annotations

import contextlib
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ppa_cases import CONFIG, SDC, SOURCE

from edagym.envs.ppa.sandbox import COMMANDS, MAX_OUTPUT, read_files
from edagym.errors import EditError

NOTES = "gamma 3 x\nalpha 10 y\nbeta 2 x\nalpha 10 y\nbeta 2 x\n\n"
CELLS = "cell,area,count\nINVx1,0.04,12\nNAND2x1,0.08,30\nDFFHQNx1,0.29,16\n"
FILES = {
    "FlowVariables.md": "# Flow variables\n",
    "config/config.mk": CONFIG,
    "config/constraint.sdc": SDC,
    "logs/6_report.json": '{"b": {"list": [1, {"x": "y z"}]}, "a": 0.25}\n',
    "logs/cells.csv": CELLS,
    "logs/notes.txt": NOTES,
    "logs/other.txt": NOTES.replace("gamma", "delta"),
    "src/adder.v": SOURCE,
}

SAME_AS_THE_TOOL = [
    "cat logs/notes.txt",
    "cat -n src/adder.v",
    "cat logs/notes.txt logs/cells.csv",
    "head -n 2 logs/notes.txt",
    "head -3 logs/notes.txt",
    "head -n -2 logs/notes.txt",
    "head -c 7 logs/notes.txt",
    "tail -n 2 logs/notes.txt",
    "tail -n +3 logs/notes.txt",
    "tail -c 5 logs/notes.txt",
    "grep alpha logs/notes.txt",
    "grep -n 'input' src/adder.v",
    "grep -in INPUT src/adder.v",
    "grep -v x logs/notes.txt",
    "grep -c beta logs/notes.txt",
    "grep -E '^(alpha|beta) [0-9]+' logs/notes.txt",
    r"grep '^[a-g]*\(ma\|ta\) ' logs/notes.txt",
    "grep -w wire src/adder.v",
    "grep -x 'beta 2 x' logs/notes.txt",
    "grep -F '[3:0]' src/adder.v",
    "grep -o '[0-9][0-9]*' logs/notes.txt",
    "grep -l alpha logs/notes.txt logs/cells.csv",
    "grep -A1 -B1 -n gamma logs/notes.txt",
    "grep -m 1 beta logs/notes.txt",
    "grep -n 'clk' config/constraint.sdc src/adder.v",
    "grep -h 'clk' config/constraint.sdc src/adder.v",
    "grep 'a + b;' src/adder.v",
    "sed -n 2,4p logs/notes.txt",
    "sed -n '/module/,/endmodule/p' src/adder.v",
    "sed 's/x/Z/' logs/notes.txt",
    r"sed -E 's/([a-z]+) ([0-9]+)/\2 \1/g' logs/notes.txt",
    "sed '1d;$d' logs/notes.txt",
    "sed -n '$p' logs/cells.csv",
    "sed '2q' logs/notes.txt",
    "sed -n '/alpha/=' logs/notes.txt",
    "sed 's|a|<&>|g' logs/notes.txt",
    "sed -n '2!p' logs/cells.csv",
    "awk '{print $1}' logs/notes.txt",
    "awk '{print $2, $1}' logs/notes.txt",
    "awk -F, '{print $1 \":\" $3}' logs/cells.csv",
    "awk -F, 'NR>1 && $3>12 {print $1, NR, NF}' logs/cells.csv",
    "awk '/beta/ {print $NF}' logs/notes.txt",
    "awk 'NR==2' logs/notes.txt",
    "awk '$1 ~ /^al/ || NR==1 {print NR\": \"$0}' logs/notes.txt",
    "awk -F, 'NR>1 {print $2*$3}' logs/cells.csv",
    "awk '!/x/' logs/notes.txt",
    "wc -l logs/notes.txt",
    "sort logs/notes.txt",
    "sort -u logs/notes.txt",
    "sort -r logs/notes.txt",
    "sort -t, -k3 -n logs/cells.csv",
    "sort logs/notes.txt | uniq -c",
    "sort logs/notes.txt | uniq -d",
    "cut -d, -f1,3 logs/cells.csv",
    "cut -c2-4 logs/notes.txt",
    "cut -d' ' -f2- logs/notes.txt",
    "cat logs/notes.txt | tr a-z A-Z",
    "cat logs/notes.txt | tr -d aeiou",
    "cat logs/notes.txt | tr -s '\\n'",
    "cat src/adder.v | grep -v '//' | head -2 | wc -l",
    "ls config",
    "ls src/adder.v",
    "find src -type f",
    "xxd logs/notes.txt",
    "od -c logs/cells.csv",
    "strings logs/notes.txt",
    "diff -q logs/notes.txt logs/other.txt",
    "jq .a logs/6_report.json",
    "jq -r '.b.list[1].x' logs/6_report.json",
    "jq -c '.b | keys' logs/6_report.json",
    "jq '.b.list | length' logs/6_report.json",
    "jq -c '.b.list[]' logs/6_report.json",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("sandbox")
    for path, text in FILES.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.mark.parametrize("command", SAME_AS_THE_TOOL)
def test_prints_what_the_tool_prints(command, folder):
    tools = {stage.split()[0] for stage in command.split(" | ")}
    answer = read_files(command, FILES)
    assert answer or "-q" in command or command.startswith("grep -l")
    if all(shutil.which(t) for t in tools):
        env = {"LC_ALL": "C", "PATH": "/usr/local/bin:/usr/bin:/bin"}
        real = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, env=env)
        squeeze = " ".join if command.startswith(("wc", "xxd", "od")) or "wc" in command else "".join
        assert squeeze(answer.split(" ")).split() == squeeze(real.stdout.split(" ")).split()


def test_listings():
    assert read_files("ls", FILES).split() == ["FlowVariables.md", "config", "logs", "src"]
    assert read_files("ls -l logs", FILES).count("-r--r--r--") == 4
    assert read_files("ls *.md config/*.mk", FILES).split() == ["FlowVariables.md", "config/config.mk"]
    assert read_files("find . -name '*.v'", FILES) == "src/adder.v\n"
    assert read_files("find -maxdepth 1 -type d", FILES).split() == [".", "config", "logs", "src"]
    assert "|-- adder.v" in read_files("tree", FILES)
    assert read_files("cat ./src/adder.v", FILES) == SOURCE
    assert read_files("grep -rn --include=*.v endmodule", FILES) == "src/adder.v:9:endmodule\n"
    assert read_files("file src/adder.v", FILES).startswith("src/adder.v: ")
    assert "Size: " in read_files("stat src/adder.v", FILES)
    assert read_files("less src/adder.v", FILES) == read_files("more src/adder.v", FILES) == SOURCE
    assert read_files("diff -u logs/notes.txt logs/other.txt", FILES).splitlines()[3:5] == ["-gamma 3 x", "+delta 3 x"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        # other programs
        ("rm -rf .", "this command is not allowed"),
        ("python3 -c 1", "this command is not allowed"),
        ("sh", "this command is not allowed"),
        ("./cat x", "this command is not allowed"),
        ("/bin/cat src/adder.v", "this command is not allowed"),
        ("cat src/adder.v | sh", "this command is not allowed"),
        ("xargs cat", "this command is not allowed"),
        # shell syntax
        ("cat src/adder.v > x", "output redirection"),
        ("cat src/adder.v >> x", "output redirection"),
        ("cat<src/adder.v", "input redirection"),
        ("cat src/adder.v; ls", "only one pipeline"),
        ("cat src/adder.v && ls", "shell control operators"),
        ("cat src/adder.v || ls", "shell control operators"),
        ("cat src/adder.v & ls", "shell control operators"),
        ("cat src/adder.v |& ls", "shell control operators"),
        ("cat src/adder.v\nls", "only one line"),
        ("cat $(ls)", "command substitution"),
        ("cat `ls`", "command substitution"),
        ('cat "$(ls)"', "nothing is expanded"),
        ('cat "`ls`"', "nothing is expanded"),
        ("cat $HOME", "variables are not expanded"),
        ("cat ${HOME}", "variables are not expanded|command substitution"),
        ('cat "$HOME/x"', "nothing is expanded"),
        ("cat <(ls)", "input redirection"),
        ("", "empty"),
        ("|", "empty"),
        ("cat src/adder.v |", "empty"),
        ("| cat", "empty"),
        ("cat 'src", "not closed"),
        ("|".join(["cat src/adder.v"] + ["cat"] * 20), "too long"),
        # other files
        ("cat ../secret", "only files of the sandbox"),
        ("cat src/../../secret", "only files of the sandbox"),
        ("cat /etc/passwd", "only files of the sandbox"),
        ("cat ~/x", "only files of the sandbox"),
        ("grep -r root /etc", "only files of the sandbox"),
        ("ls ..", "only files of the sandbox"),
        ("find / -name x", "only files of the sandbox"),
        ("tree ..", "only files of the sandbox"),
        ("diff src/adder.v /etc/passwd", "only files of the sandbox"),
        ("cat info.json", "not for agents"),
        ("cat ./info.json", "not for agents"),
        ("jq . info.json", "not for agents"),
        ("cat task.json", "not for agents"),
        ("cat config/../info.json", "only files of the sandbox"),
        ("cat nothing.txt", "no such file"),
        ("cat src", "is a folder"),
        # what the real tools can do beyond reading
        ("awk 'BEGIN {system(\"ls\")}'", "awk|needs a file"),
        ("awk '{system(\"ls\")}' src/adder.v", "only print"),
        ("awk '{print > \"x\"}' src/adder.v", "output to files"),
        ("awk '{print $0 | \"sh\"}' src/adder.v", "output to files"),
        ("awk '{getline < \"/etc/passwd\"; print}' src/adder.v", "only print"),
        ("awk -f src/adder.v src/adder.v", "option"),
        ("awk -v x=1 '{print x}' src/adder.v", "option"),
        ("awk '{print ENVIRON[\"HOME\"]}' src/adder.v", "not allowed"),
        ("awk 'while(1){}' src/adder.v", "not allowed"),
        ("sed -i s/a/b/ src/adder.v", "option"),
        ("sed 's/a/b/w x' src/adder.v", "flags|text after"),
        ("sed 's/a/b/e' src/adder.v", "flags"),
        ("sed '1e ls' src/adder.v", "'e' is not allowed"),
        ("sed 'w x' src/adder.v", "'w' is not allowed"),
        ("sed 'r /etc/passwd' src/adder.v", "'r' is not allowed"),
        ("sed ':a;ba' src/adder.v", "not allowed"),
        ("sed -n -f src/adder.v src/adder.v", "option"),
        ("find . -exec ls", "option"),
        ("find . -delete", "option"),
        ("find . -fprint x", "option"),
        ("sort -o x src/adder.v", "option"),
        ("sort --files0-from=x", "option"),
        ("uniq src/adder.v out.txt", "output file"),
        ("xxd -r src/adder.v", "option"),
        ("xxd src/adder.v out", "output file"),
        ("less +!ls src/adder.v", "pager"),
        ("less -o x src/adder.v", "option"),
        ("tail -f src/adder.v", "option"),
        ("tree -o x", "option"),
        ("diff --to-file=x src/adder.v", "option"),
        ("jq 'input' logs/6_report.json", "only paths"),
        ("jq 'env' logs/6_report.json", "only paths"),
        ("jq -n '$ENV'", "option"),
        ("jq '.a' src/adder.v", "not JSON"),
        ("grep -f /etc/passwd x", "option"),
        ("grep -P x src/adder.v", "option"),
        # endless work
        ("grep -E '(a+)+$' src/adder.v", "nested or too many"),
        ("grep -E '(a|aa)*b' src/adder.v", "nested or too many"),
        ("grep -E '((a)*)*' src/adder.v", "nested or too many"),
        ("grep '.*.*.*.*.*x' src/adder.v", "nested or too many"),
        (r"grep '\(a\)\1' src/adder.v", "nested or too many"),
        ("grep '[' src/adder.v", "not a pattern"),
        ("grep " + "a" * 300 + " src/adder.v", "too long"),
        ("head -n 1e9 src/adder.v", "not a whole number"),
    ],
)
def test_refused(command, reason):
    with pytest.raises(EditError, match=reason):
        read_files(command, FILES)


def test_every_listed_command_exists():
    for name in COMMANDS:
        with pytest.raises(EditError) as caught:
            read_files(f"{name} --no-such-option", FILES)
        assert "this command" not in str(caught.value)


def test_long_answers_are_cut():
    answer = read_files("cat big.txt", {"big.txt": "x" * (MAX_OUTPUT + 5)})
    assert len(answer) < MAX_OUTPUT + 100
    assert answer.endswith("[cut: 6 more characters]\n")


def test_the_files_stay_as_they_are():
    files = dict(FILES)
    for command in SAME_AS_THE_TOOL:
        read_files(command, files)
    assert files == FILES


@settings(max_examples=300)
@given(st.text(alphabet="catsedwk -n'\"/\\|${}()[].*+?,;src:adder.v=&p\n`<>~", max_size=40))
def test_any_command_answers_or_is_refused(command):
    with contextlib.suppress(EditError):
        assert isinstance(read_files(command, FILES), str)


@settings(max_examples=300)
@given(
    st.sampled_from(["sed", "awk", "grep", "grep -E", "jq", "tr", "cut -f", "sort -k", "find -name"]),
    st.text(alphabet='ab/sgpdn;,$^*+?[](){}|\\.~!&=<>"0123 :#', max_size=20),
)
def test_any_argument_answers_or_is_refused(tool, argument):
    if "'" in argument:
        return
    piped = f"cat logs/notes.txt | {tool} '{argument}'" if tool == "tr" else f"{tool} '{argument}' logs/notes.txt"
    with contextlib.suppress(EditError):
        assert isinstance(read_files(piped, FILES), str)
