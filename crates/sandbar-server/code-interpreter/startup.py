"""Run in each Python kernel before the first cell: the forms in which results are shown beyond those that IPython knows."""

import datetime

from IPython import get_ipython
from IPython.core.formatters import BaseFormatter
from traitlets import ObjectName, Unicode

# Rows of a table that come along as data; the client is to show it, not to compute with it.
MOST_ROWS = 10_000


class Data(BaseFormatter):
    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = dict


class Chart(BaseFormatter):
    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = dict

    def __call__(self, obj):
        # Not by the list of types: matplotlib takes its figures off all of these when it is first used.
        kinds = type(obj).__mro__
        if any(kind.__name__ == "Figure" and kind.__module__ == "matplotlib.figure" for kind in kinds):
            return chart(obj)
        return super().__call__(obj)


def plain(value):
    """A cell of a table, as JSON has it."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if value == value and value not in (float("inf"), float("-inf")) else None
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        try:
            return value.isoformat()
        except ValueError:
            return None
    if hasattr(value, "item"):
        return plain(value.item())
    return str(value)


def table(frame):
    head = frame.head(MOST_ROWS)
    return {str(name): [plain(value) for value in head.iloc[:, at].tolist()] for at, name in enumerate(head.columns)}


def chart(figure):
    try:
        from e2b_charts import chart_figure_to_dict
    except ImportError:
        return None
    try:
        return chart_figure_to_dict(figure) or None
    except Exception:
        # A figure that nobody can read anything from is still a picture.
        return None


def install(shell):
    formatters = shell.display_formatter.formatters
    for kind in (Data, Chart):
        formatter = kind(parent=shell.display_formatter)
        formatters[formatter.format_type] = formatter
    active = shell.display_formatter.active_types
    shell.display_formatter.active_types = [*active, "e2b/data", "e2b/chart"]
    formatters["e2b/data"].for_type_by_name("pandas", "DataFrame", table)
    formatters["e2b/data"].for_type_by_name("pandas.core.frame", "DataFrame", table)


install(get_ipython())
