"""Descriptions of jobs, drawn for property tests."""

from hypothesis import strategies as st

from nemesis.processors.parallelism.spec import FABRICS, Dim, Fabric, Spec, Term

degrees = st.integers(1, 4096)
counts = st.sampled_from((0, 1, 2, 8, 12, 18))


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Any fabric with any suffixes."""
    kind = draw(st.sampled_from(FABRICS))
    soft = draw(st.booleans())
    tier = draw(st.integers(0, 3))
    return Fabric(
        kind=kind,
        link_count=draw(counts),
        width=draw(st.sampled_from((0, 8, 36, 72))) if kind == "NVL" else 0,
        scope=draw(st.sampled_from(("t", "g"))) if tier else "t",
        tier=tier,
        force="soft" if soft else "hard",
        wait_s=draw(st.integers(0, 86_400)) if soft else 0,
    )


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """Any description that the grammar knows, sensible or not."""
    dims: tuple[Dim, ...] = ("TP", "CP", "EP", "ETP", "PP", "DP", "FSDP", "DPR")
    chosen = draw(st.lists(st.sampled_from(dims), min_size=1, max_size=8))
    star = draw(st.integers(-8, len(chosen) - 1))
    terms = tuple(
        Term(
            dim,
            0 if at == star and dim in ("DP", "FSDP") else draw(degrees),
            draw(st.integers(1, 8)) if dim == "PP" else 1,
            draw(st.none() | fabrics()),
        )
        for at, dim in enumerate(chosen)
    )
    return Spec(
        terms=terms,
        sequence_parallel=draw(st.booleans()),
        micro_batch=draw(st.integers(0, 64)),
        global_batch=draw(st.integers(0, 65_536)),
        order=draw(st.sampled_from(("", "megatron", "tp-cp-ep-dp-pp"))),
        spares=draw(st.integers(0, 8)),
    )
