// Replaces the server's charts with ones that show values, hide series and zoom. Pages work without this script. What it
// shows is in the table below a chart; the times of the bars are in the attribute data-chart.
"use strict";

(() => {
  const HEIGHT = 224;
  const STEPS = Array.from({ length: 45 }, (_, n) => [1, 2, 5][n % 3] * 10 ** Math.floor(n / 3));
  const DAY_MS = 86_400_000;
  /** The least distance of the texts of two times, in pixels. */
  const TICK_SPACE = 84;

  /** The charts of the page, and what the reader chose in them, by the id of their caption. */
  const charts = new Map();
  const choices = new Map();
  let isDragging = false;

  // Times are in UTC, like those of the texts of the page, and formatted for the language of the reader.
  const formatter = (options) => new Intl.DateTimeFormat(undefined, { ...options, timeZone: "UTC" });
  const exact = formatter({ dateStyle: "medium", timeStyle: "short" });
  const day = formatter({ dateStyle: "medium" });
  const month = formatter({ year: "numeric", month: "long" });
  const tickTime = formatter({ hour: "numeric", minute: "2-digit" });
  const tickDay = formatter({ month: "short", day: "numeric" });
  const tickMonth = formatter({ month: "short", year: "numeric" });

  const formatSlot = (unit, from, until) => {
    if (unit === "minute") return `${exact.format(from)} UTC`;
    if (unit === "hour") return `${exact.formatRange(from, until)} UTC`;
    return (unit === "day" ? day : month).format(from);
  };

  /** Puts the ticks of a chart by day or month below the middles of bars, also of the last one: a bar is a whole day or month. */
  const placeTicks = ({ middles, times, until }) => (_plot, _axis, _least, _most, step, space) => {
    const width = ((until - times[0]) / times.length) * (space / step);
    const every = Math.max(1, Math.ceil(TICK_SPACE / width));
    return middles.filter((_, at) => (times.length - 1 - at) % every === 0);
  };

  const formatTicks = (unit) => (_plot, ticks, _axis, _space, step) => {
    if (unit === "month") return ticks.map((at) => tickMonth.format(at));
    if (unit === "day" || step >= DAY_MS) return ticks.map((at) => tickDay.format(at));
    let last = "";
    return ticks.map((at) => {
      const date = tickDay.format(at);
      const text = date === last ? tickTime.format(at) : `${tickTime.format(at)}\n${date}`;
      last = date;
      return text;
    });
  };

  const formatCount = (value) => value.toLocaleString("en-US");
  const formatMicroseconds = (us) => (us < 1000 ? `${us} µs` : us < 1_000_000 ? `${us / 1000} ms` : `${us / 1_000_000} s`);

  // Reads a chart from its figure.
  const read = (figure) => {
    const data = JSON.parse(figure.dataset.chart);
    const ends = [...data.times.slice(1), data.until];
    const rows = [...figure.querySelectorAll("tbody tr")];
    const caption = figure.querySelector("figcaption");
    return {
      ...data, ends,
      middles: data.times.map((from, at) => (from + ends[at]) / 2),
      labels: data.times.map((from, at) => formatSlot(data.unit, from, ends[at])),
      headers: rows.map((row) => row.querySelector("th")),
      texts: rows.map((row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent)),
      names: [...figure.querySelectorAll("thead th")].slice(1).map((cell) => cell.textContent),
      zoomPath: figure.dataset.zoom,
      id: caption.id,
      title: caption.textContent,
    };
  };

  // The height of each series: of a nested one its value, of another one the sum of it and the visible ones below it. The tallest
  // is drawn first.
  const stack = (chart, hidden) => {
    let sums = chart.times.map(() => 0);
    const tops = chart.series.map((values, n) => {
      if (!hidden.has(n)) sums = sums.map((sum, at) => (chart.isNested ? values[at] : sum + values[at]));
      return sums;
    });
    return [chart.middles, ...tops.reverse()];
  };

  // Leads to the page of the period from one bar to another. Its address is in the history, so going back undoes it.
  const zoom = (chart, first, last) => {
    const [from, until] = [chart.times[first], chart.ends[last]];
    const isWhole = first === 0 && last === chart.times.length - 1;
    if (!chart.zoomPath || isWhole || (chart.unit === "minute" && first === last)) return;
    const hasTimes = ["minute", "hour"].includes(chart.unit);
    const url = new URL(chart.zoomPath, location.href);
    url.searchParams.set("range", "custom");
    url.searchParams.set("from", new Date(from).toISOString().slice(0, hasTimes ? 16 : 10));
    // The end of a period of whole days is its last day.
    url.searchParams.set("until", new Date(hasTimes ? until : until - 1).toISOString().slice(0, hasTimes ? 16 : 10));
    location.assign(url);
  };

  const findSlot = (chart, at) => Math.max(0, chart.times.findLastIndex((from) => from <= at));

  const options = (figure, chart, hidden, show, host) => {
    const styleOf = (selector, n = 0) => getComputedStyle(figure.querySelectorAll(selector)[n]);
    const axis = {
      font: `12px ${getComputedStyle(figure).fontFamily}`, stroke: () => styleOf(".scale").color, ticks: { show: false },
      grid: { stroke: () => styleOf(".plot .grid").stroke, width: 1 },
    };
    const times = { values: formatTicks(chart.unit), space: TICK_SPACE };
    if (["day", "month"].includes(chart.unit)) times.splits = placeTicks(chart);
    const format = chart.noun ? formatCount : formatMicroseconds;
    const widest = (texts) => Math.max(...texts.map((text) => text.length));
    const drawn = chart.series.map((_, n) => ({
      show: !hidden.has(n), width: 0, points: { show: false }, fill: () => styleOf(".legend rect", n).fill,
      paths: uPlot.paths.bars({ size: [0.8, 100] }),
    }));
    return {
      width: host.clientWidth, height: HEIGHT, ms: 1, legend: { show: false }, padding: [10, 28, 0, 0],
      tzDate: (at) => uPlot.tzDate(new Date(at), "UTC"),
      series: [{}, ...drawn.reverse()],
      scales: {
        x: { range: () => [chart.times[0], chart.until] },
        y: { range: (_chart, _least, most) => [0, most > 0 ? most * 1.05 : 1] },
      },
      axes: [
        { ...axis, ...times, size: (_chart, texts) => (texts?.some((text) => text.includes("\n")) ? 42 : 26), gap: 6, grid: { show: false } },
        { ...axis, values: (_chart, ticks) => ticks.map(format), incrs: STEPS, size: (_chart, texts) => (texts ? widest(texts) * 7 + 14 : 40) },
      ],
      cursor: { y: false, points: { show: false }, drag: { x: Boolean(chart.zoomPath), y: false, setScale: false, dist: 4 } },
      hooks: {
        setCursor: [(plot) => show(plot.cursor.left >= 0 ? plot.cursor.idx : null)],
        setSelect: [(plot) => {
          const { left, width } = plot.select;
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          if (width > 0) zoom(chart, findSlot(chart, plot.posToVal(left, "x")), findSlot(chart, plot.posToVal(left + width, "x") - 1));
        }],
      },
    };
  };

  // Puts a button around each entry of the legend and returns the elements with the values.
  const makeLegend = (figure, hidden, toggle) => {
    const entries = [...figure.querySelectorAll(".legend li")];
    if (entries.length > 1) {
      entries.forEach((entry, n) => {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "small";
        button.setAttribute("aria-pressed", String(!hidden.has(n)));
        button.append(...entry.childNodes);
        button.addEventListener("click", () => button.setAttribute("aria-pressed", String(toggle(n))));
        entry.append(button);
      });
    }
    return entries.map((entry) => entry.querySelector(".muted"));
  };

  // Lets the arrow keys go from bar to bar, and Enter zoom into one.
  const addKeys = (host, chart, plot) => {
    const last = chart.times.length - 1;
    host.addEventListener("keydown", (event) => {
      const at = plot.cursor.left >= 0 ? plot.cursor.idx : null;
      const to = { ArrowRight: at === null ? 0 : Math.min(at + 1, last), ArrowLeft: at === null ? last : Math.max(at - 1, 0), Home: 0, End: last }[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (to !== undefined) {
        event.preventDefault();
        plot.setCursor({ left: plot.valToPos(chart.middles[to], "x"), top: 0 });
      } else if (event.key === "Escape") plot.setCursor({ left: -10, top: -10 });
      else if (event.key === "Enter" && at !== null) zoom(chart, at, at);
    });
  };

  const makeHost = (figure, chart) => {
    const host = document.createElement("div");
    host.className = "canvas";
    host.tabIndex = 0;
    const attributes = { role: "slider", "aria-label": chart.title, "aria-valuemin": 0, "aria-valuemax": chart.times.length - 1, "aria-valuenow": 0 };
    for (const [name, value] of Object.entries(attributes)) host.setAttribute(name, value);
    const plot = figure.querySelector(".plot");
    for (const part of plot.children) part.setAttribute("hidden", "");
    plot.append(host);
    return host;
  };

  // Shows the values of a bar in the legend, or the sums if there is none.
  const makeShow = (host, chart, hidden, values, moment) => {
    const sums = values.map((value) => value.textContent);
    const idle = chart.zoomPath && matchMedia("(pointer: fine)").matches ? "Drag across the chart to zoom in." : "\u00a0";
    return (at) => {
      const isShown = (_, n) => !hidden.has(n);
      values.forEach((value, n) => (value.textContent = at === null ? sums[n] : chart.texts[at][n]));
      host.setAttribute("aria-valuenow", at ?? 0);
      if (at === null) {
        host.setAttribute("aria-valuetext", "No bar selected. Use the arrow keys.");
        moment.textContent = idle;
        return;
      }
      const total = chart.series.filter(isShown).reduce((sum, series) => sum + series[at], 0);
      const parts = chart.names.map((name, n) => `${name} ${chart.texts[at][n]}`).filter(isShown);
      host.setAttribute("aria-valuetext", `${chart.labels[at]}: ${parts.join(", ")}`);
      moment.textContent = chart.labels[at] + (chart.noun ? ` · ${formatCount(total)} ${chart.noun}` : "");
    };
  };

  const enhance = (figure) => {
    const chart = read(figure);
    const { hidden, isOpen, cursor } = choices.get(chart.id) ?? { hidden: new Set(), isOpen: false };
    chart.headers.forEach((header, at) => (header.textContent = chart.labels[at]));
    const host = makeHost(figure, chart);
    const moment = document.createElement("p");
    moment.className = "hint";
    host.parentElement.after(moment);
    const toggle = (n) => {
      if (!hidden.delete(n)) hidden.add(n);
      plot.setSeries(chart.series.length - n, { show: !hidden.has(n) });
      plot.setData(stack(chart, hidden));
      return !hidden.has(n);
    };
    const show = makeShow(host, chart, hidden, makeLegend(figure, hidden, toggle), moment);
    const plot = new uPlot(options(figure, chart, hidden, show, host), stack(chart, hidden), host);
    show(null);
    addKeys(host, chart, plot);
    host.addEventListener("pointerdown", () => (isDragging = true));
    const details = figure.querySelector("details");
    details.open = isOpen;
    if (cursor) plot.setCursor(cursor);
    const sizes = new ResizeObserver(() => host.clientWidth && plot.setSize({ width: host.clientWidth, height: HEIGHT }));
    sizes.observe(host);
    charts.set(chart.id, {
      redraw: () => plot.redraw(),
      close: () => {
        const { left, top } = plot.cursor;
        choices.set(chart.id, { hidden, isOpen: details.open, cursor: left >= 0 ? { left, top } : undefined });
        sizes.disconnect();
        plot.destroy();
      },
    });
  };

  const enhanceAll = () => {
    charts.clear();
    for (const figure of document.querySelectorAll("figure[data-chart]")) enhance(figure);
  };

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const chart of charts.values()) chart.redraw();
  });
  addEventListener("pointerup", () => (isDragging = false));
  addEventListener("pointercancel", () => (isDragging = false));

  // Live refresh replaces all figures. What the reader chose in them, and the focus, stay.
  const stops = () => [...document.querySelectorAll("#report :is(a, button, summary, [tabindex='0'])")];
  let focused = -1;
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.target.id === "report" && document.hidden) event.preventDefault();
  });
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target.id !== "report" || !event.detail.shouldSwap) return;
    if (isDragging) {
      event.detail.shouldSwap = false;
      return;
    }
    focused = stops().indexOf(document.activeElement);
    for (const chart of charts.values()) chart.close();
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.target.id !== "report") return;
    enhanceAll();
    if (focused >= 0) stops()[focused]?.focus({ preventScroll: true });
  });

  enhanceAll();
})();
