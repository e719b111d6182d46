"""HiGHS, the solver: asked an integer program, it answers in time with values and a bound.

An answer is a proposal: whoever asked checks it. The same program with the same seed may end
elsewhere on another machine, for its time runs by a clock; replay reads what was answered.
"""

from collections.abc import Sequence
from typing import Any, Final

import highspy
import numpy as np
from highspy._core import _Highs

from nemesis.processors.placement.counts import Answer
from nemesis.processors.placement.mip import Mip

GAP: Final = 1e-6
"""Relative; objectives are whole numbers below a million."""


def solve(mip: Mip, *, seconds: float, start: Sequence[int] = (), threads: int = 1) -> Answer:
    """The best values that are found in so many seconds; `start`: values to begin with."""
    highs: Any = _Highs()  # highspy.Highs writes its licence to stdout before it can be told not to
    for name, value in (
        ("output_flag", False),
        ("time_limit", seconds),
        ("threads", threads),
        ("random_seed", 1),
        ("mip_rel_gap", GAP),
    ):
        highs.setOptionValue(name, value)
    highs.passModel(_lp(mip))
    if start:
        solution = highspy.HighsSolution()
        solution.col_value = [float(each) for each in start]
        highs.setSolution(solution)
    highs.run()
    status = highs.modelStatusToString(highs.getModelStatus()).lower()
    info = highs.getInfo()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = tuple(round(each) for each in highs.getSolution().col_value) if found else ()
    return Answer(values, max(0.0, float(info.mip_dual_bound)), status)


def _lp(mip: Mip) -> highspy.HighsLp:
    """The program as HiGHS takes it, by rows."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(mip.costs), len(mip.rows)
    lp.col_cost_ = np.array(mip.costs, dtype=np.float64)
    lp.col_lower_ = np.zeros(len(mip.costs))
    lp.col_upper_ = np.array(mip.uppers, dtype=np.float64)
    lp.row_lower_ = np.array([row.low for row in mip.rows], dtype=np.float64)
    lp.row_upper_ = np.array([row.high for row in mip.rows], dtype=np.float64)
    lp.integrality_ = [highspy.HighsVarType.kInteger] * len(mip.costs)
    starts = np.cumsum([0, *(len(row.columns) for row in mip.rows)])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = starts.astype(np.int32)
    lp.a_matrix_.index_ = np.array([c for row in mip.rows for c in row.columns], dtype=np.int32)
    lp.a_matrix_.value_ = np.array([v for row in mip.rows for v in row.values], dtype=np.float64)
    return lp
