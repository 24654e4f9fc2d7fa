"use strict";
// Draws the charts again for another axis, a part of it, smoothed curves and without hidden runs; shows the
// values at the pointer and at the arrow keys; sorts the table of the runs. Without it the page is complete.
(() => {
  const { runs, charts } = JSON.parse(document.getElementById("points").textContent);
  const get = (id) => document.getElementById(id);
  const tip = get("tip");
  const many = get("show-0") !== null;

  // What all charts share: the axis, the part of it that is shown, or null, and how much is smoothed.
  const shared = { axis: "step", part: null, smooth: 0 };
  const mostPoints = 240; // of a curve, as in the page without the script

  const shown = (run) => !many || get("show-" + run).checked;

  // --- numbers and ticks, as in the package chart ---

  const trim = (s) => s.replace(/e([+-])0*(\d)/, (_, sign, digit) => "e" + (sign === "-" ? "-" : "") + digit);
  const text = (v) => {
    if (v === null) return "not finite";
    const a = Math.abs(v);
    if (a >= 1e4 && a < 1e15) return String(Math.round(v));
    return trim(String(Number(v.toPrecision(4))));
  };
  const label = (v) => {
    const a = Math.abs(v);
    const digits = (x, n) => String(Number(x.toPrecision(n)));
    if (v === 0) return "0";
    if (a < 1e-3 || a >= 1e12) return trim(v.toExponential());
    if (a >= 1e9) return digits(v / 1e9, 4) + "G";
    if (a >= 1e6) return digits(v / 1e6, 4) + "M";
    if (a >= 1e4) return digits(v / 1e3, 6) + "k";
    return digits(v, 6);
  };
  const labels = (marks) => {
    const small = marks.some((v) => v !== 0 && Math.abs(v) < 1e-3);
    return marks.map((v) => small && v !== 0 && Math.abs(v) < 1 ? trim(Number(v.toPrecision(6)).toExponential()) : label(v));
  };
  const roundStep = (v) => {
    if (!(v > 0) || v === Infinity) return 1;
    const power = 10 ** Math.floor(Math.log10(v));
    const m = [1, 2, 5].find((m) => m * power >= v * 0.85);
    return (m || 10) * power;
  };
  const exact = (v) => Number(v.toPrecision(12));
  const multiples = (low, high, step) => {
    const out = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && out.length < 100; i++) out.push(exact(i * step));
    return out;
  };
  const linear = (low, high) => {
    if (low === high) {
      const room = Math.abs(low) / 10;
      if (room === 0) high = 1; else { low -= room; high += room; }
    }
    const room = (high - low) / 25;
    const bottom = low >= 0 && low - room < 0 ? 0 : low - room;
    const scale = { low: bottom, high: high + room, at: (v) => (v - bottom) / (high + room - bottom) };
    scale.marks = multiples(scale.low, scale.high, roundStep((scale.high - scale.low) / 6));
    scale.lines = [];
    return scale;
  };
  const digits = [1, 2, 3, 4, 5, 6, 7, 8, 9];
  const logarithmic = (low, high) => {
    if (low === high) { low /= 2; high *= 2; }
    const room = (high / low) ** (1 / 25);
    low /= room; high *= room;
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const some = (factors, every) => {
      const out = [];
      for (let e = first; e <= last; e++) if (e % every === 0) for (const f of factors) {
        const v = exact(f * 10 ** e);
        if (v >= low && v <= high) out.push(v);
      }
      return out;
    };
    let marks = some(last - first <= 4 ? [1, 2, 5] : [1], Math.max(1, Math.floor((last - first) / 6)));
    if (marks.length < 4) marks = some(digits, 1);
    if (marks.length < 3) marks = multiples(low, high, roundStep((high - low) / 4));
    const lines = Math.log10(high / low) > 6 ? [] : some(digits, 1).filter((v) => !marks.includes(v));
    return { low, high, marks, lines, at: (v) => Math.log10(v / low) / Math.log10(high / low) };
  };

  // --- the axis ---

  // between returns the value at x of the straight lines through points, which begin at 0 and continue as the last.
  const between = (xs, ys, x) => {
    let low = 0, high = xs.length - 1;
    if (x >= xs[high]) {
      const [x0, y0] = high > 0 ? [xs[high - 1], ys[high - 1]] : [0, 0];
      return xs[high] === x0 ? ys[high] : ys[high] + (x - xs[high]) * (ys[high] - y0) / (xs[high] - x0);
    }
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle + 1; else high = middle;
    }
    const [x0, y0] = low > 0 ? [xs[low - 1], ys[low - 1]] : [0, 0];
    return xs[low] === x0 ? ys[low] : y0 + (x - x0) * (ys[low] - y0) / (xs[low] - x0);
  };
  const knows = (run, axis) => axis === "step" || (axis === "epoch" ? runs[run].epoch > 0 : Boolean(runs[run].steps) && runs[run][axis].some((v) => v > 0));
  const along = (run, step) => {
    const r = runs[run];
    switch (shared.axis) {
      case "step": return step;
      case "epoch": return step / r.epoch;
    }
    return between(r.steps, r[shared.axis], step);
  };
  const time = (s) => {
    const pad = (n) => String(n).padStart(2, "0");
    s = Math.round(s);
    return s < 3600 ? Math.floor(s / 60) + ":" + pad(s % 60) : Math.floor(s / 3600) + ":" + pad(Math.floor(s / 60) % 60) + ":" + pad(s % 60);
  };
  const xmarks = ([low, high]) => {
    let step = roundStep((high - low) / 7);
    if (shared.axis === "step" || shared.axis === "examples") step = Math.max(1, step);
    if (shared.axis === "seconds") {
      const wanted = (high - low) / 7;
      step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800].find((s) => s >= wanted * 0.85) || Math.ceil(wanted / 86400) * 86400;
    }
    return multiples(low, high, step).map((v) => ({ v, label: shared.axis === "seconds" ? time(v) : label(v) }));
  };
  const named = { step: "step", epoch: "epoch", examples: "examples", seconds: "time" };

  // nearest returns the index of the value that is nearest to one, by bisection. The values rise.
  const nearest = (values, at) => {
    let low = 0, high = values.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] < at) low = middle + 1; else high = middle;
    }
    if (low > 0 && at - values[low - 1] <= values[low] - at) low--;
    return low;
  };

  // --- curves ---

  // visible returns the points of a line in a range, and one on each side of it, as at most mostPoints.
  const visible = (line, [from, to]) => {
    const xs = line.xs;
    let a = 0, b = xs.length;
    while (a < b && xs[a] < from) a++;
    while (b > a && xs[b - 1] > to) b--;
    a = Math.max(0, a - 1);
    b = Math.min(xs.length, b + 1);
    const n = Math.min(b - a, mostPoints), out = [];
    for (let i = 0; i < n; i++) {
      const p = { x: 0, mean: null, low: Infinity, high: -Infinity };
      let count = 0, sum = 0, smooth = 0;
      const start = a + Math.floor(i * (b - a) / n), end = a + Math.floor((i + 1) * (b - a) / n);
      for (let k = start; k < end; k++) {
        if (line.mean[k] === null) continue;
        count++;
        sum += line.mean[k];
        smooth += line.smooth[k];
        p.low = Math.min(p.low, line.low ? line.low[k] : line.mean[k]);
        p.high = Math.max(p.high, line.high ? line.high[k] : line.mean[k]);
      }
      p.x = (xs[start] + xs[end - 1]) / 2;
      if (count) { p.mean = sum / count; p.smooth = smooth / count; }
      out.push(p);
    }
    return out;
  };

  // smoothed returns the exponential moving average of values, without the pull of its beginning.
  const smoothed = (values, weight) => {
    let sum = 0, norm = 0;
    return values.map((v) => {
      if (v === null) return null;
      sum = weight * sum + (1 - weight) * v;
      norm = weight * norm + (1 - weight);
      return sum / norm;
    });
  };

  const figures = [...document.querySelectorAll(".chart")].map((figure) => {
    const data = charts[figure.dataset.chart];
    const names = [...figure.querySelectorAll(".legend li")];
    data.lines.forEach((line, i) => {
      line.off = false; // hidden in this chart alone
      line.class = names[i].className;
    });
    return { figure, data, names, area: figure.querySelector(".area"), full: data.x, current: null };
  });
  const seen = (f) => f.data.lines.filter((l) => shown(l.run) && !l.off && knows(l.run, shared.axis) && l.xs.length > 0);

  // prepare computes what depends on the axis and on smoothing.
  const prepare = () => {
    let end = 0;
    figures.forEach((f) => f.data.lines.forEach((line) => {
      line.xs = knows(line.run, shared.axis) ? line.steps.map((s) => along(line.run, s)) : [];
      line.smooth = shared.smooth > 0 && !line.eval ? smoothed(line.mean, shared.smooth) : line.mean;
      if (shown(line.run) && line.xs.length) end = Math.max(end, line.xs[line.xs.length - 1]);
    }));
    figures.forEach((f) => { f.full = shared.axis === "step" ? f.data.x : [0, end || 1]; });
  };

  const number = (v) => v.toFixed(2) + "%";
  const path = (points, x, y, of) => {
    let pen = "M", out = "";
    points.forEach((p) => {
      const v = p[of];
      if (p.mean === null || !(y(v) > -20 && y(v) < 20)) { pen = "M"; return; } // a gap
      out += pen + Math.round(1000 * x(p.x)) + " " + Math.round(1000 * (1 - y(v)));
      pen = "L";
    });
    return out;
  };

  // plot fills one SVG of a chart.
  const plot = (svg, f, range, curves) => {
    const log = svg.classList.contains("log");
    let low = Infinity, high = -Infinity;
    curves.filter((c) => c.on).forEach((c) => c.points.forEach((p) => {
      if (p.mean === null || p.x < range[0] || p.x > range[1]) return;
      if (!log || p.low > 0) low = Math.min(low, p.low);
      high = Math.max(high, p.high);
    }));
    if (!(low <= high)) [low, high] = log ? [0.1, 1] : [0, 1];
    const scale = log ? logarithmic(low, high) : linear(low, high);
    const x = (v) => (v - range[0]) / (range[1] - range[0]);
    const y = (v) => log && !(v > 0) ? -100 : scale.at(v);
    let out = "";
    scale.lines.forEach((v) => { const at = number(100 * (1 - y(v))); out += `<line class="grid between" x1="0" x2="100%" y1="${at}" y2="${at}"/>`; });
    const said = labels(scale.marks);
    scale.marks.forEach((v, i) => {
      const at = number(100 * (1 - y(v)));
      out += `<line class="grid" x1="0" x2="100%" y1="${at}" y2="${at}"/><text class="ytick" x="-8" y="${at}" dy="4">${said[i]}</text>`;
    });
    xmarks(range).forEach((t) => {
      const at = number(100 * x(t.v));
      out += `<line class="mark" x1="${at}" x2="${at}" y1="100%" y2="100%"/><text class="xtick" x="${at}" y="100%" dy="18">${t.label}</text>`;
    });
    out += `<svg viewBox="0 0 1000 1000" preserveAspectRatio="none">`;
    let dots = "";
    curves.forEach(({ line, points, on }) => {
      const kind = line.class + (on ? "" : " off"), plain = line.smooth === line.mean;
      if (points.some((p) => p.low < p.high) && plain) {
        const edge = points.filter((p) => p.mean !== null && y(p.low) > -20);
        const corner = (p, v) => Math.round(1000 * x(p.x)) + " " + Math.round(1000 * (1 - y(v)));
        if (edge.length) out += `<path class="band ${kind}" d="M${edge.map((p) => corner(p, p.high)).concat(edge.map((p) => corner(p, p.low)).reverse()).join("L")}Z"/>`;
      }
      if (!plain) out += `<path class="curve pale ${kind}" d="${path(points, x, y, "mean")}"/>`;
      out += `<path class="curve ${kind}" d="${path(points, x, y, "smooth")}"/>`;
      const best = line.best === undefined || !line.xs.length ? -1 : nearest(line.steps, line.best);
      const dot = (px, v, more) => {
        if (px >= range[0] && px <= range[1] && y(v) > -20) dots += `<circle class="dot${more} ${kind}" cx="${number(100 * x(px))}" cy="${number(100 * (1 - y(v)))}"/>`;
      };
      if (points.length === 1 || line.eval && points.length <= 40) points.forEach((p) => { if (p.mean !== null) dot(p.x, p.smooth, ""); });
      if (best >= 0 && line.mean[best] !== null) dot(line.xs[best], line.mean[best], " best");
    });
    svg.innerHTML = out + "</svg>" + dots + `<rect class="chosen" y="0" height="100%" width="0"/><line class="cross" y1="0" y2="100%"/>`;
    svg.classList.toggle("part", shared.part !== null);
  };

  const draw = (f) => {
    const range = shared.part || f.full;
    const on = seen(f);
    const curves = f.data.lines.map((line) => ({ line, on: on.includes(line), points: visible(line, range) }));
    f.area.querySelectorAll(":scope > .plot").forEach((svg) => plot(svg, f, range, curves));
    f.names.forEach((li, i) => {
      const off = f.data.lines[i].off;
      li.classList.toggle("off", off);
      li.setAttribute("aria-pressed", String(!off && shown(f.data.lines[i].run)));
    });
  };
  const redraw = () => {
    hideAll();
    prepare();
    figures.forEach(draw);
    const known = get("zoom-all");
    if (known) known.disabled = get("zoom-out").disabled = shared.part === null;
  };
  // show shows a part of the axis, or all of it.
  const zoom = (range) => {
    const [low, high] = figures[0].full;
    if (range) {
      range = [Math.max(low, range[0]), Math.min(high, range[1])];
      if (range[1] - range[0] >= (high - low) * 0.999) range = null;
      else if (!(range[1] - range[0] > (high - low) / 5000)) return;
    }
    shared.part = range;
    redraw();
  };
  const zoomBy = (factor, around) => {
    const [a, b] = shared.part || figures[0].full;
    const at = around === null ? (a + b) / 2 : around;
    const share = (at - a) / (b - a), width = (b - a) * factor;
    let from = at - share * width;
    from = Math.max(figures[0].full[0], Math.min(from, figures[0].full[1] - width));
    zoom([from, from + width]);
  };

  // --- the pointer and the keys ---

  const hide = (f) => {
    f.current = null;
    f.area.classList.remove("at");
    tip.hidden = true;
  };
  const hideAll = () => figures.forEach(hide);
  const box = (f) => [...f.area.querySelectorAll(":scope > .plot")].find((p) => getComputedStyle(p).display !== "none").getBoundingClientRect();
  const said = (x) => shared.axis === "seconds" ? time(x) : shared.axis === "epoch" ? text(x) : String(Math.round(x));

  // show puts the cross on the point of any curve that is nearest to a place on the axis.
  const show = (f, wanted) => {
    const range = shared.part || f.full, lines = seen(f);
    if (!lines.length) return hide(f);
    let at = null, step = null;
    lines.forEach((line) => {
      const k = nearest(line.xs, wanted);
      if (at === null || Math.abs(line.xs[k] - wanted) < Math.abs(at - wanted)) { at = line.xs[k]; step = line.steps[k]; }
    });
    if (at < range[0] || at > range[1]) return hide(f);
    f.current = at;
    tip.replaceChildren();
    const head = document.createElement("b");
    head.textContent = named[shared.axis] + " " + said(at) + (shared.axis === "step" || lines.length > 1 && many ? "" : ", step " + step);
    tip.append(head);
    f.data.lines.forEach((line, i) => {
      if (!lines.includes(line)) return;
      const k = nearest(line.xs, at);
      const row = document.createElement("div");
      row.className = "row " + line.class;
      const span = document.createElement("span");
      let value = text(line.mean[k]);
      if (line.low && line.low[k] !== line.high[k]) value += " (" + text(line.low[k]) + " to " + text(line.high[k]) + ")";
      if (line.smooth !== line.mean && line.smooth[k] !== null) value += ", smoothed " + text(line.smooth[k]);
      if (line.xs[k] !== at) value += " at " + said(line.xs[k]);
      span.textContent = f.names[i].textContent + ": " + value;
      row.append(span);
      tip.append(row);
    });
    const share = (at - range[0]) / (range[1] - range[0]);
    f.figure.querySelectorAll(".cross").forEach((cross) => {
      cross.setAttribute("x1", 100 * share + "%");
      cross.setAttribute("x2", 100 * share + "%");
    });
    f.area.classList.add("at");
    tip.hidden = false;
    const plot = box(f), x = plot.left + share * plot.width;
    const right = x + 16 + tip.offsetWidth > document.documentElement.clientWidth;
    tip.style.left = Math.max(4, right ? x - 14 - tip.offsetWidth : x + 14) + window.scrollX + "px";
    tip.style.top = plot.top + 8 + window.scrollY + "px";
  };

  figures.forEach((f) => {
    const place = (event) => {
      const plot = box(f), range = shared.part || f.full;
      return range[0] + Math.min(1, Math.max(0, (event.clientX - plot.left) / plot.width)) * (range[1] - range[0]);
    };
    let from = null; // where a drag began
    const choose = (a, b) => {
      const range = shared.part || f.full, at = (v) => 100 * (v - range[0]) / (range[1] - range[0]);
      f.figure.querySelectorAll(".chosen").forEach((rect) => {
        rect.setAttribute("x", number(at(Math.min(a, b))));
        rect.setAttribute("width", number(Math.abs(at(a) - at(b))));
      });
    };
    const far = (event) => from !== null && Math.abs(event.clientX - from.pixel) > 8;
    f.area.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      from = { at: place(event), pixel: event.clientX };
      f.area.setPointerCapture(event.pointerId);
      show(f, from.at);
    });
    f.area.addEventListener("pointermove", (event) => {
      if (far(event)) choose(from.at, place(event));
      show(f, place(event));
    });
    f.area.addEventListener("pointerup", (event) => {
      const began = from, chosen = far(event);
      from = null;
      if (!chosen) return;
      const to = place(event);
      choose(0, 0);
      zoom([Math.min(began.at, to), Math.max(began.at, to)]);
    });
    f.area.addEventListener("pointercancel", () => { from = null; choose(0, 0); });
    f.area.addEventListener("dblclick", () => zoom(null));
    f.area.addEventListener("pointerleave", () => hide(f));
    f.area.addEventListener("blur", () => hide(f));
    f.area.addEventListener("keydown", (event) => {
      const refocus = (change) => { const at = f.current; event.preventDefault(); change(at); if (at !== null) show(f, at); };
      switch (event.key) {
        case "Escape": return hide(f);
        case "+": return refocus((at) => zoomBy(0.5, at));
        case "-": return refocus((at) => zoomBy(2, at));
        case "0": return refocus(() => zoom(null));
      }
      const range = shared.part || f.full;
      const all = [...new Set(seen(f).flatMap((l) => l.xs))].filter((x) => x >= range[0] && x <= range[1]).sort((a, b) => a - b);
      if (!all.length) return;
      const here = f.current === null ? -1 : nearest(all, f.current);
      const to = { ArrowRight: here + 1, ArrowLeft: here < 0 ? all.length - 1 : here - 1, Home: 0, End: all.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      show(f, all[Math.min(all.length - 1, Math.max(0, to))]);
    });
    // The legend hides the run in all charts, or with one run the curve in this one.
    f.names.forEach((li, i) => {
      if (f.names.length < 2) return;
      li.setAttribute("role", "button");
      li.tabIndex = 0;
      li.setAttribute("aria-pressed", "true");
      const toggle = () => {
        const line = f.data.lines[i];
        if (many) return get("show-" + line.run).click();
        line.off = !line.off;
        redraw();
      };
      li.addEventListener("click", toggle);
      li.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        toggle();
      });
    });
  });
  document.querySelectorAll(".show").forEach((box) => box.addEventListener("change", redraw));

  // --- the controls of all curves ---

  const controls = get("controls");
  if (controls) {
    const axis = get("axis"), smooth = get("smooth");
    [...axis.options].forEach((o) => { o.disabled = !runs.some((_, i) => knows(i, o.value)); });
    axis.addEventListener("change", () => {
      shared.axis = axis.value;
      shared.part = null;
      redraw();
      const lack = runs.map((_, i) => i).filter((i) => !knows(i, shared.axis)).length;
      get("lack").textContent = lack ? "not drawn, as they do not say it: " + lack + " of " + runs.length + " runs" : "";
    });
    smooth.addEventListener("input", () => {
      shared.smooth = Number(smooth.value);
      controls.querySelector("output[for]").textContent = smooth.value;
      redraw();
    });
    get("zoom-in").addEventListener("click", () => zoomBy(0.5, null));
    get("zoom-out").addEventListener("click", () => zoomBy(2, null));
    get("zoom-all").addEventListener("click", () => zoom(null));
    controls.hidden = false;
    document.querySelectorAll(".scripted").forEach((e) => { e.hidden = false; });
    prepare();
  }

  // --- tables ---

  document.querySelectorAll(".compare").forEach((table) => {
    const heads = [...table.querySelectorAll(".heads th")], body = table.tBodies[0];
    heads.forEach((th, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = th.textContent;
      th.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = th.getAttribute("aria-sort") === (th.classList.contains("n") ? "descending" : "ascending");
        const sign = down === th.classList.contains("n") ? 1 : -1; // numbers begin with the greatest
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        th.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        const key = (row) => row.cells[i].dataset.key;
        const order = (a, b) => {
          if (a === b) return 0;
          if (a === "" || b === "") return a === "" ? 1 : -1; // nothing comes last
          const x = Number(a), y = Number(b);
          return sign * (Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y);
        };
        body.append(...[...body.rows].sort((a, b) => order(key(a), key(b))));
      });
    });
  });

  // A table that is wider than the screen says so.
  const watch = new ResizeObserver((entries) => entries.forEach(({ target }) => {
    const wide = target.scrollWidth > target.clientWidth + 1;
    let note = target.previousElementSibling;
    if (!note || !note.classList.contains("wider")) {
      if (!wide) return;
      note = document.createElement("p");
      note.className = "wider";
      note.textContent = "The table is wider than the screen: scroll it sideways.";
      target.before(note);
    }
    note.hidden = !wide;
    if (wide) target.tabIndex = 0; else target.removeAttribute("tabindex");
  }));
  document.querySelectorAll(".scroll").forEach((e) => watch.observe(e));
})();
