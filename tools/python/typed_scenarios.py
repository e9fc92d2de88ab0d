"""Writes orrery/scenarios.py: the scenario language as typed dictionaries, from its JSON Schema.

usage: typed_scenarios.py SCHEMA.json OUTPUT.py
"""

import json
import keyword
import sys

HEAD = '''"""Scenarios as typed dictionaries: made from the schema of the scenario language, one class a section.

    from orrery.scenarios import Plan, TrainingScenario
    scenario = TrainingScenario(orrery=1, kind="training", plan=Plan(tensor=8))  # a plain dict, which orrery.run takes

Type checkers and editors know every key. What the values mean: orrery.help("training", "plan.tensor").
"""

from typing import Any, Literal, TypedDict, Union

'''


class Writer:
    def __init__(self, schema):
        self.defs = schema["$defs"]
        self.names = {}  # of an object schema, by its text
        self.taken = {"Scenario": True}
        self.blocks = []

    def resolve(self, schema):
        while "$ref" in schema:
            schema = self.defs[schema["$ref"].rsplit("/", 1)[1]]
        return schema

    def type_of(self, schema, key, parent):
        schema = self.resolve(schema)
        if "anyOf" in schema:
            kinds = []
            for part in schema["anyOf"]:
                kind = self.type_of(part, key, parent)
                if kind not in kinds:
                    kinds.append(kind)
            return kinds[0] if len(kinds) == 1 else "Union[" + ", ".join(kinds) + "]"
        if "enum" in schema:
            return "Literal[" + ", ".join(repr(value) for value in schema["enum"]) + "]"
        if "const" in schema:
            return f"Literal[{schema['const']!r}]"
        kind = schema.get("type")
        if isinstance(kind, list):
            return "Union[" + ", ".join(self.type_of({**schema, "type": one}, key, parent) for one in kind) + "]"
        if kind == "object":
            if not schema.get("properties"):
                return "dict[str, Any]"
            return f'"{self.section(schema, key, parent)}"'
        if kind == "array":
            return f"list[{self.type_of(schema['items'], key, parent)}]" if "items" in schema else "list[Any]"
        return {"integer": "int", "number": "float", "boolean": "bool", "string": "str", "null": "None"}.get(kind, "Any")

    def section(self, schema, key, parent):
        text = json.dumps(schema, sort_keys=True)
        if text in self.names:
            return self.names[text]
        own = "".join(part.capitalize() for part in key.replace("-", "_").split("_"))
        name = own if own not in self.taken else parent + own
        number = 2
        while name in self.taken:
            name = f"{parent}{own}{number}"
            number += 1
        self.names[text] = name
        self.taken[name] = True
        rows = []
        for field, inner in schema["properties"].items():
            about = self.resolve(inner).get("description") or inner.get("description", "")
            rows.append((field, self.type_of(inner, field, name), " ".join(about.split())))
        if all(field.isidentifier() and not keyword.iskeyword(field) for field, _, _ in rows):
            lines = [f"class {name}(TypedDict, total=False):"]
            for field, kind, about in rows:
                lines += [f"    #: {about}"] if about else []
                lines += [f"    {field}: {kind}"]
        else:  # a key is a word of Python
            lines = [f"{name} = TypedDict({name!r}, {{"]
            for field, kind, about in rows:
                lines += [f"    #: {about}"] if about else []
                lines += [f"    {field!r}: {kind},"]
            lines += ["}, total=False)"]
        self.blocks.append("\n".join(lines))
        return name


def main():
    with open(sys.argv[1], encoding="utf-8") as stream:
        schema = json.load(stream)
    writer = Writer(schema)
    kinds = schema["properties"]["kind"]["enum"]
    names = [writer.section(schema["$defs"][kind], f"{kind}_scenario", "") for kind in kinds]
    text = HEAD + "\n\n" + "\n\n\n".join(writer.blocks) + "\n\n\n#: A scenario of any kind.\n"
    text += "Scenario = Union[" + ", ".join(names) + "]\n"
    with open(sys.argv[2], "w", encoding="utf-8") as stream:
        stream.write(text)


if __name__ == "__main__":
    main()
