"use strict";
// Shows the values of a chart's curves at the pointer, and at the arrow keys.
(() => {
  const charts = JSON.parse(document.getElementById("points").textContent) || [];
  const tip = document.getElementById("tip");

  const shown = (run) => {
    const box = document.getElementById("show-" + run);
    return !box || box.checked;
  };

  const text = (v) => {
    if (v === null) return "not finite";
    const a = Math.abs(v);
    if (a >= 1e4 && a < 1e15) return String(Math.round(v));
    return String(Number(v.toPrecision(4)));
  };

  // nearest returns the index of the step that is nearest to a step, by bisection.
  const nearest = (steps, at) => {
    let low = 0, high = steps.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle] < at) low = middle + 1; else high = middle;
    }
    if (low > 0 && at - steps[low - 1] <= steps[low] - at) low--;
    return low;
  };

  document.querySelectorAll(".chart").forEach((figure) => {
    const data = charts[figure.dataset.chart];
    const area = figure.querySelector(".area");
    if (!data) return;
    const width = data.x[1] - data.x[0];
    const names = [...figure.querySelectorAll(".legend li")];
    // All steps of the curves that are shown, for the arrow keys.
    const steps = () => [...new Set(data.lines.filter((l) => shown(l.run)).flatMap((l) => l.steps))].sort((a, b) => a - b);
    let current = null;

    const hide = () => {
      current = null;
      tip.hidden = true;
      area.classList.remove("at");
    };

    const show = (wanted) => {
      const lines = data.lines.map((line, i) => ({ line, i })).filter(({ line }) => shown(line.run));
      if (!lines.length) return hide();
      // The cross stands on the nearest step of any curve.
      let step = null;
      lines.forEach(({ line }) => {
        const s = line.steps[nearest(line.steps, wanted)];
        if (step === null || Math.abs(s - wanted) < Math.abs(step - wanted)) step = s;
      });
      current = step;
      tip.replaceChildren();
      const head = document.createElement("b");
      head.textContent = "step " + step;
      tip.append(head);
      lines.forEach(({ line, i }) => {
        const k = nearest(line.steps, step);
        const row = document.createElement("div");
        row.className = "row " + names[i].className;
        const label = document.createElement("span");
        let value = text(line.mean[k]);
        if (line.low && line.low[k] !== line.high[k]) value += " (" + text(line.low[k]) + " to " + text(line.high[k]) + ")";
        if (line.steps[k] !== step) value += " at " + line.steps[k];
        label.textContent = names[i].textContent + ": " + value;
        row.append(label);
        tip.append(row);
      });
      const at = (step - data.x[0]) / width;
      figure.querySelectorAll(".cross").forEach((cross) => {
        cross.setAttribute("x1", 100 * at + "%");
        cross.setAttribute("x2", 100 * at + "%");
      });
      area.classList.add("at");
      tip.hidden = false;
      const plot = [...area.querySelectorAll(":scope > .plot")].find((p) => getComputedStyle(p).display !== "none").getBoundingClientRect();
      const x = plot.left + at * plot.width;
      const right = x + 16 + tip.offsetWidth > document.documentElement.clientWidth;
      tip.style.left = Math.max(4, right ? x - 14 - tip.offsetWidth : x + 14) + window.scrollX + "px";
      tip.style.top = plot.top + 8 + window.scrollY + "px";
    };

    const point = (event) => {
      const plot = [...area.querySelectorAll(":scope > .plot")].find((p) => getComputedStyle(p).display !== "none").getBoundingClientRect();
      show(data.x[0] + Math.min(1, Math.max(0, (event.clientX - plot.left) / plot.width)) * width);
    };
    area.addEventListener("pointermove", point);
    area.addEventListener("pointerdown", point);
    area.addEventListener("pointerleave", hide);
    area.addEventListener("blur", hide);
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return hide();
      const all = steps();
      if (!all.length) return;
      const here = current === null ? -1 : nearest(all, current);
      const to = { ArrowRight: here + 1, ArrowLeft: here < 0 ? all.length - 1 : here - 1, Home: 0, End: all.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      show(all[Math.min(all.length - 1, Math.max(0, to))]);
    });
  });
})();
