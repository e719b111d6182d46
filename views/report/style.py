"""How a report looks: light, dark and on paper, without anything from elsewhere.

Ink on its ground is at least 4.5 to 1 in both schemes; the colours are the dashboard's.
"""

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --page: light-dark(#f4f5f8, #0e1016); --card: light-dark(#ffffff, #171a22);
  --sunk: light-dark(#f0f1f6, #11141b); --line: light-dark(#dfe2ea, #2a2f3c);
  --ink: light-dark(#171a26, #e8eaf1); --soft: light-dark(#3f4557, #c2c7d4);
  --dim: light-dark(#5c6377, #959cb0);
  --seen: light-dark(#8a5300, #f2b455); --concluded: light-dark(#3b4cca, #97a4ff);
  --decided: light-dark(#6e40c9, #c4adff); --done: light-dark(#12704a, #6fd3a3);
  --people: light-dark(#b3261e, #ff8a80); --on-mark: light-dark(#ffffff, #0e1016);
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans",
  sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 32px 24px 64px; }
header p, footer { color: var(--dim); font-size: 13px; margin: 0; }
h1 { font-size: 27px; line-height: 1.25; margin: 6px 0 10px; overflow-wrap: anywhere; }
h2 { font-size: 16px; margin: 0 0 12px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 18px 20px; margin-top: 16px; }
.lead { font-size: 17px; margin: 0 0 14px; overflow-wrap: anywhere; }
.pill { display: inline-block; border: 1px solid currentColor; border-radius: 999px;
  padding: 1px 10px; font-size: 13px; font-weight: 600; margin-right: 6px; }
.good { color: var(--done); } .bad { color: var(--people); } .calm { color: var(--concluded); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 6px 20px; margin: 0; }
dl + dl { margin-top: 14px; padding-top: 14px; border-top: 1px solid var(--line); }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
code, pre, .mono { font-size: 13px;
  font-family: ui-monospace, "SF Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace; }
pre { background: var(--sunk); border: 1px solid var(--line); border-radius: 6px; margin: 6px 0 0;
  padding: 9px 12px; white-space: pre-wrap; overflow-wrap: anywhere; }
ul, ol { margin: 0; padding-left: 20px; } li + li { margin-top: 10px; }
li::marker { color: var(--dim); }
.dim { color: var(--dim); } .small { font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--dim); font-weight: 500; }
th, td { padding: 6px 14px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; } td { overflow-wrap: anywhere; }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.nowrap { white-space: nowrap; }
.timeline { display: block; width: 100%; min-width: 720px; height: auto; margin-bottom: 14px;
  font: 12px system-ui, "DejaVu Sans", sans-serif; }
.timeline text { fill: var(--soft); } .timeline .lane { fill: var(--dim); font-size: 13px; }
.timeline .rail { stroke: var(--line); } .timeline .tick { stroke: var(--dim); }
.timeline .idle { fill: var(--sunk); stroke: var(--line); stroke-dasharray: 3 3; }
.timeline .pause { text-anchor: middle; fill: var(--dim); }
.timeline .attempt { stroke: var(--done); stroke-width: 6; opacity: .35; }
.timeline g text.number { fill: var(--on-mark); text-anchor: middle;
  font-size: 10px; font-weight: 700; }
.seen circle { fill: var(--seen); } .concluded circle { fill: var(--concluded); }
.decided circle { fill: var(--decided); } .done circle { fill: var(--done); }
.people circle { fill: var(--people); }
td.seen { color: var(--seen); } td.concluded { color: var(--concluded); }
td.decided { color: var(--decided); } td.done { color: var(--done); }
td.people { color: var(--people); }
footer { margin-top: 20px; }
@media (max-width: 600px) {
  main { padding: 20px 12px 40px; } section { padding: 14px; } h1 { font-size: 22px; }
  table { min-width: 620px; } dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 8px; }
}
@media print {
  :root { color-scheme: light; }
  body { background: none; font-size: 12px; } main { max-width: none; padding: 0; }
  section { border: 0; border-top: 1px solid #999; border-radius: 0; padding: 12px 0; }
  h2, tr, li, svg { break-inside: avoid; } h2 { break-after: avoid; } .scroll { overflow: visible; }
  .timeline { min-width: 0; } circle, .idle, .attempt { print-color-adjust: exact; }
  @page { margin: 16mm; }
}
"""
