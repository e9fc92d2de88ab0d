"use strict";
// Draws the blocks of a report. `report` is the data that the program wrote above this script.
const colours = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7a00", "#777777"];
const errors = [];
window.addEventListener("error", (event) => errors.push(event.message));
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
Chart.defaults.color = dark ? "#a0a4ab" : "#5f6368";
Chart.defaults.borderColor = dark ? "#363b44" : "#dcdfe4";
Chart.defaults.animation = false;
Chart.defaults.maintainAspectRatio = false;

function make(tag, options, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(options || {})) {
        if (key === "text") node.textContent = value;
        else if (key === "data") Object.assign(node.dataset, value);
        else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
        else node.setAttribute(key, value);
    }
    node.append(...children.filter((child) => child != null));
    return node;
}

// Names break after their underscores, dots and brackets and, where they are long, between their words, where they must.
const breakable = (name) => typeof name === "string" ? name.replace(/([_./<,:]|(?<=\w)\()(?=\w)/g, "$1\u200b").replace(/[A-Za-z0-9]{16,}/g, (word) => word.replace(/([a-z0-9])(?=[A-Z])/g, "$1\u200b")) : name;

// A number and its unit stay on one line.
const joined = (text) => String(text).replace(/(\d) (?=(%|[a-zA-Z]{1,3}\b))/g, "$1\u00a0");

const short = (value) => typeof value !== "number" ? (value ?? "") : Number.isInteger(value) && Math.abs(value) < 1e9 ? String(value) : String(Number(value.toPrecision(6)));

function chart(host, config) {
    const canvas = make("canvas");
    host.append(make("div", { class: config.type === "scatter" ? "chart tall" : "chart" }, canvas));
    return new Chart(canvas, config);
}

const axis = (text, extra) => ({ title: { display: true, text }, ...extra });

// 0.000012 as "12 us", so that an axis of times over many decades stays readable.
const seconds = (value) => {
    for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["us", 1e-6], ["ns", 1e-9]]) if (Math.abs(value) >= size * 0.9999) return `${short(Number((value / size).toPrecision(4)))} ${unit}`;
    return short(value);
};
// A logarithmic axis with as many labels as there is room for: 1, 2, ..., or 1, 2, 5, or powers of ten.
const logarithmic = (text) => axis(text, { type: "logarithmic", ticks: { maxRotation: 0, autoSkip: false, callback(value) {
    const room = (this.isHorizontal() ? this.width / 58 : this.height / 22), decades = Math.log10(this.max / this.min) || 1;
    const power = Math.floor(Math.log10(value) + 1e-9), first = Math.round(value / 10 ** power);
    const wanted = 9 * decades <= room ? first : 3 * decades <= room ? [1, 2, 5].includes(first) : first === 1 && power % Math.ceil(decades / room) === 0;
    return wanted ? (/(^|, )s(econds)?$/.test(text) ? seconds(value) : short(value)) : "";
} } });

const draw = {
    tiles(block, host) {
        const grid = make("div", { class: "tiles" });
        block.items.forEach((item, i) => grid.append(make("div", { class: "tile" + ((block.lead ? item.name === block.lead : i === 0) ? " lead" : ""), title: item.title ?? "", data: { metric: item.name, value: item.value } },
            make("span", { class: "soft", text: breakable(item.label || item.name) }), make("b", { text: item.text }),
            item.low == null ? null : make("span", { class: "soft", text: joined(`90 %: ${item.low} to ${item.high}`) }))));
        host.append(grid);
    },
    // What was asked of what, the answer, what was promised, and what follows from it.
    story(block, host) {
        const facts = make("dl", { class: "facts" });
        for (const fact of block.facts) facts.append(make("dt", { text: fact.name }), make("dd", { class: fact.name === "Answer" ? "answer" : "", text: joined(fact.text) }));
        const verdicts = block.verdicts.map((one) => make("p", { class: one.met ? "met" : "missed" }, make("b", { text: one.met ? "\u2713 met: " : "\u2717 missed: " }), joined(one.text)));
        const findings = make("ol", { class: "findings" }, ...block.findings.map((text) => make("li", { class: "verdict", text: joined(text) })));
        host.append(facts, ...verdicts, ...(block.findings.length ? [make("h2", { text: "Findings" }), findings] : []));
    },
    bars(block, host) {
        // What the full width stands for: `most` of the block, or the longest bar.
        const most = Math.max(...block.items.map((item) => Math.abs(item.value)), block.most ?? 1e-300);
        // Where some are below zero, zero stands in the middle.
        const middle = block.items.some((item) => item.value < 0) ? 50 : 0;
        for (const item of block.items) {
            const width = (100 - middle) * Math.abs(item.value) / most;
            const fill = make("i", { style: `width:${width}%;margin-left:${item.value < 0 ? middle - width : middle}%;background:${item.colour || colours[0]}` });
            host.append(make("div", { class: "bar", data: { part: item.name, value: item.value } }, make("span", { text: breakable(item.name) }), make("span", { class: "track" }, fill), make("span", { text: item.text })));
        }
    },
    // Means and percentiles: a row for each quantity.
    quantiles(block, host) {
        host.append(make("div", { class: "wide" }, make("table", { class: "quantiles" }, make("thead", {}, make("tr", {}, make("th"), ...block.columns.map((name) => make("th", { class: "n", text: name })))),
            make("tbody", {}, ...block.rows.map((row) => make("tr", {}, make("th", { title: row.title, text: breakable(row.name) }), ...row.cells.map((cell) => make("td", cell ? { class: "n", text: cell.text, data: { metric: cell.name, value: cell.value } } : { class: "n", text: "-" }))))))));
    },
    // Blocks side by side where there is room.
    grid(block, host) {
        const box = make("div", { class: "grid" });
        host.append(box);
        for (const child of block.blocks) section(child, box);
    },
    // Rows of parts with one legend. With a capacity the rows share its scale, and each has a line there; else parts fill them.
    stacks(block, host) {
        const names = new Map();
        const total = (row) => row.parts.reduce((sum, part) => sum + part.value, 0);
        const scale = block.capacity ? 1.02 * Math.max(block.capacity.value, ...block.rows.map(total)) : 0;
        const limit = () => scale ? make("i", { class: "limit", style: `left:${100 * block.capacity.value / scale}%`, title: block.capacity.text }) : null;
        for (const row of block.rows) {
            const track = make("span", { class: "stack" });
            const whole = scale || total(row) || 1;
            for (const part of row.parts) {
                names.set(part.name, part.colour);
                track.append(make("i", { style: `width:${100 * part.value / whole}%;background:${part.colour}`, title: `${part.name}: ${part.text}` }));
            }
            host.append(make("div", { class: "bar" }, make("span", { text: breakable(row.name) }), make("span", { class: "track" }, track, limit()), make("span", { text: row.text })));
        }
        const legend = make("div", { class: "legend" });
        for (const [name, colour] of names) legend.append(make("span", {}, make("i", { style: `background:${colour}` }), name));
        if (scale) legend.append(make("span", {}, make("i", { class: "key" }), block.capacity.text));
        host.append(legend);
        const columns = ["part", ...block.rows.map((row) => row.name)];
        const rows = [...names.keys()].map((name) => [name, ...block.rows.map((row) => row.parts.find((part) => part.name === name)?.text ?? "-")]);
        host.append(make("details", {}, make("summary", { class: "small", text: "as a table" })));
        draw.table({ columns, rows }, host.lastChild);
    },
    // Points measured and predicted, grouped by what the reader chooses.
    compare(block, host) {
        const distinct = (i) => [...new Set(block.points.map((p) => p[3 + i]))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
        const usable = block.facets.filter((_, i) => distinct(i).length > 1);
        const choice = make("select", { "aria-label": "group by" }, ...(usable.length ? usable : block.facets.slice(0, 1)).map((name) => make("option", { text: name, value: name })));
        const filter = make("input", { type: "search", placeholder: "filter points", "aria-label": "filter points" });
        const count = make("span", { class: "soft" });
        const plot = make("div"), groups = make("div"), list = make("div");
        host.append(make("div", { class: "controls" }, make("label", { class: "soft", text: "group by " }, choice), filter, count), plot, groups, list);
        const percent = (value) => Number((100 * value).toFixed(2));
        const middle = (values) => { const v = values.slice().sort((a, b) => a - b), m = v.length >> 1; return v.length % 2 ? v[m] : (v[m - 1] + v[m]) / 2; };
        let current = null;
        const redraw = () => {
            const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
            const kept = block.points.filter((p) => words.every((word) => p.slice(2).some((text) => text.toLowerCase().includes(word))));
            count.textContent = `${kept.length} of ${block.points.length} points`;
            const at = 3 + block.facets.indexOf(choice.value);
            const by = new Map();
            for (const p of kept) by.set(p[at], [...(by.get(p[at]) || []), p]);
            const names = [...by.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
            current?.destroy();
            for (const box of [plot, groups, list]) box.replaceChildren();
            if (!kept.length) return;
            current = draw.scatter({ groups: names.map((name) => ({ name, points: by.get(name) })), x: "measured, s", y: "predicted, s", log: true, band: true }, plot);
            groups.append(make("h2", { text: `By ${choice.value}` }));
            draw.table({
                columns: [choice.value, "points", "mean absolute error, %", "median absolute error, %", "median bias, %", "worst, %", "within 10 %, %"],
                rows: names.map((name) => {
                    const errors = by.get(name).map((p) => p[1] / p[0] - 1), sizes = errors.map(Math.abs);
                    return [name, errors.length, percent(sizes.reduce((a, b) => a + b, 0) / sizes.length), percent(middle(sizes)), percent(middle(errors)), percent(Math.max(...sizes)), percent(sizes.filter((e) => e <= 0.1).length / sizes.length)];
                })
            }, groups);
            list.append(make("h2", { text: "Points" }));
            draw.table({ columns: ["point", ...block.facets, "measured, s", "predicted, s", "error, %"], rows: kept.map((p) => [p[2].replace(/: [-+][\d.]+ %$/, ""), ...p.slice(3), p[0], p[1], percent(p[1] / p[0] - 1)]) }, list);
        };
        choice.addEventListener("change", redraw);
        filter.addEventListener("input", redraw);
        redraw();
    },
    svg(block, host) {
        const box = make("div", { class: "wide" });
        box.innerHTML = block.svg;  // made by the program, every text in it escaped
        host.append(box);
    },
    text(block, host) {
        for (const line of block.lines) host.append(make("p", { text: joined(line).replace(/ -> /g, " \u2192 ") }));
    },
    table(block, host) {
        let rows = block.rows.slice(), column = -1, down = false;
        const numeric = block.columns.map((_, i) => rows.some((row) => typeof row[i] === "number"));
        const body = make("tbody");
        const count = make("span", { class: "soft" });
        const filter = make("input", { type: "search", placeholder: "filter rows", "aria-label": "filter rows" });
        const fill = () => {
            const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
            const kept = rows.filter((row) => words.every((word) => row.some((cell) => String(cell ?? "").toLowerCase().includes(word))));
            count.textContent = `${kept.length} of ${block.rows.length} rows`;
            body.replaceChildren(...kept.slice(0, 3000).map((row) => make("tr", {}, ...row.map((cell, i) =>
                make("td", { class: (numeric[i] ? "n " : "") + (/^(REGRESSED|MISSING|FAILED)/.test(cell) ? "bad " : "") + (String(cell ?? "").length > 40 ? (block.rows.length > 200 ? "clip" : "text") : ""), title: String(cell ?? "").length > 40 ? cell : block.meanings?.[cell] ?? "", text: short(cell) })))));
        };
        const head = make("tr", {}, ...block.columns.map((name, i) => make("th", {
            class: numeric[i] ? "n" : "", title: block.meanings?.[name] ?? "", text: name, tabindex: 0, onclick: () => {
                down = column === i ? !down : false;
                column = i;
                rows.sort((a, b) => {
                    const [x, y] = [a[i], b[i]];
                    if (x == null || y == null) return (x == null) - (y == null);
                    return (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y))) * (down ? -1 : 1);
                });
                fill();
            }
        })));
        filter.addEventListener("input", fill);
        fill();
        if (rows.length > 8) host.append(make("div", { class: "controls" }, filter, count));
        host.append(make("div", { class: rows.length > 20 ? "scroll" : "wide" }, make("table", {}, make("thead", {}, head), body)));
    },
    lines(block, host) {
        const xs = block.series.flatMap((s) => s.points.map((p) => p[0]));
        const wide = block.log && Math.max(...xs) > 5 * Math.min(...xs);  // over less a linear axis says more
        chart(host, {
            type: "line",
            data: { datasets: block.series.map((s, i) => ({ label: s.name, data: s.points.map(([x, y]) => ({ x, y })), borderColor: s.colour || colours[i % 8], backgroundColor: s.colour || colours[i % 8], pointRadius: s.points.length > 40 || s.dashed ? 0 : 3, borderWidth: 2, borderDash: s.dashed ? [6, 4] : [] })) },
            options: { parsing: false, interaction: { mode: "nearest" }, plugins: { legend: { labels: { usePointStyle: true, pointStyle: "line", pointStyleWidth: 28 } } }, scales: { x: wide ? logarithmic(block.x) : axis(block.x, { type: "linear", min: block.log ? undefined : 0, max: block.end, ticks: { includeBounds: false, maxRotation: 0, callback: seconds } }), y: axis(block.y, { beginAtZero: true, max: block.max }) } }
        });
    },
    scatter(block, host) {
        const all = block.groups.flatMap((g) => g.points);
        const low = Math.min(...all.flatMap((p) => [p[0], p[1]])) / 1.3, high = Math.max(...all.flatMap((p) => [p[0], p[1]])) * 1.3;
        const line = (factor, dash) => ({ type: "line", label: factor === 1 ? "measured" : `${factor > 1 ? "+" : "-"}10 %`, data: [{ x: low, y: low * factor }, { x: high, y: high * factor }], borderColor: Chart.defaults.color, borderDash: dash, borderWidth: 1, pointRadius: 0 });
        return chart(host, {
            type: "scatter",
            data: { datasets: [...block.groups.map((g, i) => ({ label: g.name, order: g.line ? 0 : 1, data: g.points.map(([x, y, label]) => ({ x, y, label })), showLine: !!g.line, borderColor: colours[i % 8], borderWidth: g.line ? 2 : 0, backgroundColor: colours[i % 8] + "b0", pointStyle: ["circle", "triangle", "rect"][Math.floor(i / 8) % 3] })), ...(block.band ? [line(1, []), line(1.1, [4, 4]), line(0.9, [4, 4])] : [])] },
            options: { parsing: false, scales: { x: block.log ? logarithmic(block.x) : axis(block.x, { type: "linear" }), y: block.log ? logarithmic(block.y) : axis(block.y, { type: "linear" }) },
                plugins: { tooltip: { callbacks: { label: (item) => `${item.raw.label ?? item.dataset.label}: ${short(item.raw.x)}, ${short(item.raw.y)}` } } } }
        });
    },
    // Points with names, which stand beside those of the front; an axis over more than a decade is logarithmic.
    named(block, host) {
        const all = block.groups.flatMap((g) => g.points);
        const wide = (i) => Math.min(...all.map((p) => p[i])) > 0 && Math.max(...all.map((p) => p[i])) > 10 * Math.min(...all.map((p) => p[i]));
        const scale = (i, text) => wide(i) ? logarithmic(text) : axis(text, { type: "linear", ticks: { callback: /(^|, )s(econds)?$/.test(text) ? seconds : short }, grace: "8%" });
        const front = all.filter((p) => p[3]).sort((a, b) => a[0] - b[0]);
        const names = { id: "names", afterDatasetsDraw(drawing) {
            const pen = drawing.ctx, { left, right, top } = drawing.chartArea;
            pen.save();
            pen.font = "11px system-ui, sans-serif";
            pen.fillStyle = Chart.defaults.color;
            const taken = [];
            drawing.data.datasets.forEach((set, i) => { if (drawing.isDatasetVisible(i)) set.data.forEach((p, j) => {
                if (!p.front) return;
                const { x, y } = drawing.getDatasetMeta(i).data[j], room = Math.min(260, drawing.width * 0.45);
                let text = p.label;
                while (text.length > 4 && pen.measureText(text).width > room) text = text.slice(0, -2).replace(/.$/, "\u2026");
                const width = pen.measureText(text).width, at = x + 8 + width > right ? Math.max(left, x - 8 - width) : x + 8;
                const box = [at, Math.max(top + 12, y - 6), at + width, Math.max(top + 12, y - 6) + 12];
                if (taken.some((t) => box[0] < t[2] && box[2] > t[0] && box[1] < t[3] && box[3] > t[1])) return;
                taken.push(box);
                pen.fillText(text, box[0], box[1]);
            }); });
            pen.restore();
        } };
        const shapes = ["circle", "triangle", "rect", "rectRot", "crossRot", "star"];
        chart(host, {
            type: "scatter",
            plugins: [names],
            data: { datasets: [...block.groups.map((g, i) => ({ label: g.name, data: g.points.map(([x, y, label, front]) => ({ x, y, label, front })), backgroundColor: colours[i % 8] + "c0", borderColor: colours[i % 8], pointStyle: shapes[i % 6], pointRadius: 5, showLine: block.joined, borderWidth: block.joined ? 2 : 1 })),
                ...(front.length > 1 && !block.joined ? [{ label: "Pareto front", data: front.map(([x, y, label]) => ({ x, y, label })), showLine: true, pointRadius: 0, borderColor: Chart.defaults.color, borderDash: [5, 4], borderWidth: 1.5 }] : [])] },
            options: { parsing: false, scales: { x: scale(0, block.x), y: scale(1, block.y) }, plugins: { legend: { display: block.groups.length > 1 || front.length > 1, labels: { usePointStyle: true } }, tooltip: { callbacks: { label: (item) => `${item.raw.label}: ${short(item.raw.x)}, ${short(item.raw.y)}` } } } }
        });
        if (front.length) draw.table({ columns: ["point", block.x, block.y], rows: front.map((p) => [p[2], p[0], p[1]]) }, host);
    },
    // Curves, heat map and front of a sweep, over the columns that the reader chooses.
    explore(block, host) {
        const at = (name) => block.columns.indexOf(name);
        // An overloaded point has no steady state: its latencies grow with the length of the run. It gets a mark in place of a value.
        const overloaded = (row) => at("overloaded") >= 0 && row[at("overloaded")] > 0;
        const all = block.rows.filter((row) => row[at("status")] === "done");
        const done = all.filter((row) => !overloaded(row)), over = all.filter(overloaded);
        const several = block.keys.filter((key) => new Set(block.rows.map((row) => row[at(key)])).size > 1);
        const select = (label, names, chosen, change) => {
            const box = make("select", { "aria-label": label, onchange: change }, ...names.map((name) => make("option", { text: name, value: name })));
            box.value = chosen;
            return [make("label", { class: "soft", text: label + " " }, box), box];
        };
        if (!done.length || !several.length || !block.metrics.length) {
            host.append(make("p", { class: "soft", text: "No point has results to draw." }));
            return;
        }
        const better = (metric) => block.higher.includes(metric) ? Math.max : Math.min;
        const order = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
        const distinct = (key) => [...new Set(block.rows.map((row) => row[at(key)]))].sort(order);
        const best = (metric, match) => {
            const values = done.filter(match).map((row) => row[at(metric)]).filter((v) => typeof v === "number");
            return values.length ? values.reduce((a, b) => better(metric)(a, b)) : null;
        };
        let current = null;
        const box = make("div"), heat = make("div", { class: "wide" });
        const [metricLabel, metricBox] = select("metric", block.metrics, block.lead, () => redraw());
        const [xLabel, xBox] = select("along", several, several[0], () => redraw());
        const [sLabel, sBox] = select("by", several, several[1] || several[0], () => redraw());
        const redraw = () => {
            const [metric, x, s] = [metricBox.value, xBox.value, sBox.value];
            const xs = distinct(x), ss = distinct(s);
            const grid = ss.map((sv) => xs.map((xv) => best(metric, (row) => row[at(x)] === xv && row[at(s)] === sv)));
            current?.destroy();
            box.replaceChildren();
            const words = xs.some((v) => typeof v === "string");  // an axis of words has no in-between: bars
            const values = grid.flat().filter((v) => v != null), low = Math.min(...values), high = Math.max(...values);
            const decades = low > 0 && high > 30 * low;
            const cut = (xv, sv) => over.some((row) => row[at(x)] === xv && row[at(s)] === sv);
            // At the upper edge, where the curve would leave the chart.
            const marks = xs.map((xv) => values.length && ss.some((sv, i) => grid[i][xs.indexOf(xv)] == null && cut(xv, sv)) ? high : null);
            const sets = ss.slice(0, 16).map((sv, i) => ({ label: s === x ? metric : `${s} ${short(sv)}`, data: s === x ? xs.map((_, j) => grid[j][j]) : grid[i], borderColor: colours[i % 8], backgroundColor: colours[i % 8], spanGaps: true })).slice(0, s === x ? 1 : 16);
            if (marks.some((v) => v != null)) sets.push({ type: "line", label: "overloaded", data: marks, showLine: false, pointStyle: "crossRot", pointRadius: 7, borderColor: "#d55e00", backgroundColor: "#d55e00", borderWidth: 2 });
            const y = `best ${metric}`;
            current = chart(box, {
                type: words ? "bar" : "line",
                data: { labels: xs.map((v) => String(short(v))), datasets: sets },
                options: { scales: { x: axis(x), y: decades ? logarithmic(y) : axis(y, { beginAtZero: words }) } }
            });
            const cell = (v, wanted) => {
                if (v == null) return make("td", { class: "heat soft", text: wanted ? "overloaded" : "-" });
                const place = decades ? Math.log : (value) => value;
                const f = high > low ? (place(v) - place(low)) / (place(high) - place(low)) : 0, mix = (a, b) => Math.round(a + (b - a) * f);
                return make("td", { class: "heat", style: `background:rgb(${mix(20, 253)},${mix(60, 231)},${mix(120, 140)});color:${f < 0.35 ? "#fff" : "#111"}`, text: String(Number(v.toPrecision(4))) });
            };
            heat.replaceChildren(make("table", {}, make("tr", {}, make("th", { text: `${s} \\ ${x}` }), ...xs.map((v) => make("th", { class: "heat", text: short(v) }))),
                ...ss.map((sv, i) => make("tr", {}, make("th", { text: short(sv) }), ...grid[i].map((v, j) => cell(v, cut(xs[j], sv)))))));
        };
        host.append(make("div", { class: "controls" }, metricLabel, xLabel, sLabel), make("p", { class: "soft", text: "Each value is the best over all other axes." + (over.length ? ` ${over.length} overloaded points have a mark in place of a value.` : "") }), box, heat);
        redraw();
        const [time, memory] = [block.lead, block.metrics.find((m) => m.startsWith("memory"))];
        if (!memory || memory === time) return;
        const named = several.slice(0, 4), colour = named.find((key) => distinct(key).length <= 8);
        const points = done.map((row) => [row[at(memory)], row[at(time)], named.map((key) => `${key.split(".").pop()} ${short(row[at(key)])}`).join(", "), false, colour ? `${colour} ${short(row[at(colour)])}` : "points"]).filter((p) => typeof p[0] === "number" && typeof p[1] === "number");
        points.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
        let edge = null;
        for (const p of points) if (edge == null || better(time)(p[1], edge) !== edge) { p[3] = true; edge = p[1]; }
        host.append(make("h2", { style: "margin-top:22px", text: `Pareto front: ${time} against ${memory}` }));
        const groups = [...new Set(points.map((p) => p[4]))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
        draw.named({ groups: groups.map((name) => ({ name, points: points.filter((p) => p[4] === name) })), x: memory.endsWith("_gib") ? `${memory}, GiB` : memory, y: time.endsWith("_s") ? `${time}, s` : time }, host);
    },
    details(block, host) {
        const inner = make("details", {}, make("summary", { text: block.title }));
        if (block.open) inner.open = true;
        for (const child of block.blocks) section(child, inner);
        host.append(inner);
    }
};

function section(block, host) {
    const node = make("section", { class: block.kind === "table" || block.kind === "details" ? "long" : "", data: { block: block.kind } });
    if (block.title && block.kind !== "details") node.append(make("h2", { text: block.title }));
    if (block.note) node.append(make("p", { class: "soft", text: block.note }));
    host.append(node);
    draw[block.kind](block, node);
}

const main = document.querySelector("main");
main.append(make("h1", { text: report.title }), make("p", { class: "soft", text: report.subtitle }));
if (report.verdict) main.append(make("p", { class: "verdict", text: joined(report.verdict) }));
for (const block of report.blocks) section(block, main);
addEventListener("beforeprint", () => { for (const d of document.querySelectorAll("details")) d.open = true; for (const c of Object.values(Chart.instances)) c.resize(); });
document.documentElement.dataset.errors = errors.join("\n");
document.documentElement.dataset.ready = "yes";
