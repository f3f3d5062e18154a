// The steps of a training job: how long each took, a line per transport, beside the ideal ones.

function drawSteps(host) {
  const runs = DATA.runs.filter((run) => run.training);
  host.hidden = !runs.length;
  if (!runs.length) return;
  const most = Math.max(...runs.map((run) => run.training.steps));
  const flat = (values) => ({ xs: [...values.keys(), values.length], ys: values.length ? [...values, values.at(-1)] : [] });
  const series = runs.map((run) => ({
    name: run.name + (run.training.died ? ` (died in step ${run.training.died})` : ""),
    style: lineStyle(DATA.runs.indexOf(run), 2.4), ...flat(run.training.us) }));
  const ideal = (name, key, dash) => ({ name, ...flat(runs[0].training[key]),
    style: `stroke:var(--quiet);stroke-width:1.4;stroke-dasharray:${dash}` });
  series.push(ideal("compute and a perfect network", "network", "5 4"), ideal("compute alone", "compute", "1 4"));
  host.append(el("p", { class: "legend" }, ...series.map((one) => el("span", {}, swatch(one.style), one.name))));
  const every = Math.max(1, Math.ceil(most / 20));
  const shown = Array.from({ length: most }, (_, i) => i).filter((i) => i % every === 0);
  lineChart(host, {
    series, end: most, step: true, label: "time of each training step", axis: "step", height: 270,
    y: (value) => (value ? fmtTime(value) : "0"),
    ticks: shown.map((i) => [i + 0.5, String(i + 1)]), words: (x) => `step ${Math.min(Math.floor(x), most - 1) + 1}`,
    read: ({ ys }, x) => (Math.floor(x) < ys.length - 1 ? fmtTime(ys[Math.floor(x)]) : "-"),
  });
  host.append(el("p", { class: "note" }, "A step ends when the last rank has ended it. "
    + "A line that is shorter than the others is of a job that died."));
}
