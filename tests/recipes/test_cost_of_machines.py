"""The table of the tutorial on clusters has the measured figures."""

import json

from tests.recipes import cost_of_machines as cost


def test_the_page_has_the_measured_figures():
    """Regenerate the table with: python -m tests.recipes.cost_of_machines"""
    found = json.loads(cost.FILE.read_text(encoding="utf-8"))
    page = cost.PAGE.read_text(encoding="utf-8")
    assert page[page.index(cost.BEGIN) + len(cost.BEGIN) : page.index(cost.END)] == f"\n{cost.render(found)}\n"
    assert [(row["machines"], row["processes"], row["batches"], row["options"]) for row in found["rows"]] == cost.SETTINGS
