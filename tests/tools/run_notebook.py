"""Runs the code of a notebook, cell after cell, and compares what it prints with what the file says: python3 run_notebook.py FILE...

No Jupyter is needed. --update writes what was printed into the file instead. Exit code 1: a cell failed, or printed something else.
Outputs are those of print, and the text of a cell's last expression, as in Jupyter.
"""

import ast
import contextlib
import difflib
import io
import json
import os
import sys
import traceback


def run_cell(source, name, space):
    """What a cell prints, and the text of its last expression (None: there is none)."""
    body = ast.parse(source, name).body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), name, "exec"), space)
        value = eval(compile(last, name, "eval"), space) if last is not None else None
    return printed.getvalue(), None if value is None else repr(value)


def outputs_of(printed, value, count):
    outputs = []
    if printed:
        outputs.append({"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": value.splitlines(keepends=True)}
        outputs.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return outputs


def text_of(outputs):
    return "\n".join("".join(one.get("text") or one["data"]["text/plain"]).rstrip("\n") for one in outputs) + "\n"


def run(path, update):
    with open(path, encoding="utf-8") as file:
        notebook = json.load(file)
    if notebook.get("nbformat") != 4:
        raise SystemExit(f"{path}: no notebook of format 4")
    os.chdir(os.path.dirname(os.path.abspath(path)))
    space = {"__name__": "__main__"}
    good, count = True, 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        count += 1
        name = f"{os.path.basename(path)}, cell {count}"
        try:
            printed, value = run_cell("".join(cell["source"]), name, space)
        except Exception:
            traceback.print_exc()
            return False
        outputs = outputs_of(printed, value, count)
        if not update and text_of(outputs) != text_of(cell["outputs"]):
            lines = [text_of(one).splitlines() for one in (cell["outputs"], outputs)]
            print("\n".join(difflib.unified_diff(*lines, f"{name}: the file", "this run", lineterm="")))
            good = False
        cell["outputs"], cell["execution_count"] = outputs, count
    if update:
        with open(os.path.basename(path), "w", encoding="utf-8") as file:
            file.write(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    return good


if __name__ == "__main__":
    here = os.getcwd()
    results = []
    for argument in sys.argv[1:]:
        if argument != "--update":
            results.append(run(os.path.join(here, argument), "--update" in sys.argv))
    sys.exit(0 if results and all(results) else 1)
