"""_report.py: the eta report as a dictionary, a text and a table of a notebook. Private;
amosc.eta() makes it."""

from __future__ import annotations

import html
import json
from typing import Any, Dict, List, Tuple

COLUMNS = ("parameter", "shape", "role", "eta", "formula", "use")


def _number(eta: Any) -> str:
    """Returns an eta, or the different values of one that varies along an axis."""

    def leaves(value: Any) -> List[float]:
        return [x for one in value for x in leaves(one)] if isinstance(value, list) else [value]

    values = list(dict.fromkeys(leaves(eta)))
    return " | ".join("?" if x is None else f"{x:.4g}" for x in values)


def _use(row: Dict[str, Any]) -> str:
    """Returns how the graph uses a parameter: pieces of a fused one, else what is known of all of
    it."""
    pieces = [piece["use"] for piece in row.get("pieces", []) if piece.get("use")]
    words = pieces or [row["use"]] if pieces or row.get("use") else []
    return " ".join(words + [key for key in ("input", "readout") if row.get(key)])


def _cells(row: Dict[str, Any]) -> Tuple[str, ...]:
    shape = "x".join(map(str, row["shape"])) or "scalar"
    sure = "" if row.get("sure", True) else " ?"
    return row["name"], shape, row["role"], _number(row["eta"]) + sure, row["formula"], _use(row)


class Report(Dict[str, Any]):
    """The eta report of a model: what `amosc eta --json` prints, as a dictionary.

    report["params"] lists the parameters with their role, expected scale, reasons and use;
    docs/eta.schema.json describes every key. print(report) shows a table, and so does a notebook. A
    question mark after an eta says that the graph does not decide it: see report["unresolved"].

        report = amosc.eta("model.onnx")
        scale = {row["name"]: row["eta"] for row in report["params"]}
    """

    @property
    def parameters(self) -> Dict[str, Dict[str, Any]]:
        """The entries of report["params"] by the name of the parameter."""
        return {row["name"]: row for row in self["params"]}

    def json(self) -> str:
        """Returns the report as text, as the option `eta` and the command read it from a file."""
        return json.dumps(self, indent=1)

    def __repr__(self) -> str:
        rows = [COLUMNS] + [_cells(row) for row in self["params"]]
        widths = [max(len(row[k]) for row in rows) for k in range(len(COLUMNS))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
            for row in rows
        ]
        return "\n".join(lines + [f"note: {note}" for note in self.get("notes", [])])

    __str__ = __repr__

    def _repr_html_(self) -> str:
        def line(row: Dict[str, Any]) -> str:
            why = html.escape(
                "; ".join(row.get("why", []))
                + (f" ({row['question']})" if row.get("question") else "")
            )
            cells = "".join(
                f'<td style="text-align:left">{html.escape(cell)}</td>' for cell in _cells(row)
            )
            return f'<tr title="{why}">{cells}</tr>'

        head = "".join(f'<th style="text-align:left">{column}</th>' for column in COLUMNS)
        rows = "\n".join(map(line, self["params"]))
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.get("notes", []))
        return (
            f"<table><caption>{html.escape(str(self['model']))}</caption>\n"
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>{notes}"
        )
