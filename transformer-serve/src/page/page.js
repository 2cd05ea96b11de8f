"use strict";

const $ = (id) => document.getElementById(id);
let languages = [];
let settings = {};
// The request under way, which the next one aborts.
let pending = null;
let timer = null;
// What the model did with the sentence shown, once it was asked for.
let insideOf = null;

function problem(text) {
  $("message").textContent = text;
}

async function ask(path, fields, signal) {
  const body = { ...fields };
  if ($("key").value) body.api_key = $("key").value;
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

function option(language) {
  const item = document.createElement("option");
  item.value = language.code;
  item.textContent = language.name;
  return item;
}

function nameOf(code) {
  return languages.find((language) => language.code === code)?.name ?? code;
}

/** Offers the targets of the source; of all sources, if it is to be detected. */
function offerTargets() {
  const source = $("source").value;
  const before = $("target").value;
  const of = languages.filter((language) => source === "auto" || language.code === source);
  const codes = new Set(of.flatMap((language) => language.targets));
  const targets = languages.filter((language) => codes.has(language.code));
  $("target").replaceChildren(...targets.map(option));
  if (codes.has(before)) $("target").value = before;
}

function show(text) {
  $("translation").textContent = text;
  $("translation").lang = $("target").value;
  $("copy").disabled = text === "";
}

function percent(probability) {
  return `${Number((100 * probability).toPrecision(2))} %`;
}

/** Lists translations; each with its probability. */
function showAlternatives(others) {
  const items = [...others].map(([text, probability]) => {
    const item = document.createElement("li");
    const note = document.createElement("small");
    note.textContent = percent(probability);
    item.append(text, " ", note);
    return item;
  });
  $("alternatives").querySelector("ol").replaceChildren(...items);
  $("alternatives").hidden = items.length === 0;
}

async function translate() {
  pending?.abort();
  forget();
  const text = $("text").value;
  const count = [...text].length;
  $("count").textContent = settings.charLimit ? `${count} / ${settings.charLimit}` : "";
  problem("");
  if (text.trim() === "") {
    show("");
    showAlternatives([]);
    $("probability").textContent = "";
    $("detected").textContent = "";
    $("result").setAttribute("aria-busy", "false");
    return;
  }
  const mine = new AbortController();
  pending = mine;
  $("result").setAttribute("aria-busy", "true");
  try {
    const fields = { q: text, source: $("source").value, target: $("target").value };
    // Of a long text, alternatives are of no use.
    const isShort = count <= 300;
    if (isShort) Object.assign(fields, { alternatives: 3, probabilities: true });
    const answer = await ask("translate", fields, mine.signal);
    show(answer.translatedText);
    $("inside").hidden = !isShort;
    const [probability, ...ofOthers] = answer.probabilities ?? [];
    $("probability").textContent = isShort ? `probability ${percent(probability)}` : "";
    const others = new Map();
    (answer.alternatives ?? []).forEach((text, index) => {
      if (text !== answer.translatedText && !others.has(text)) others.set(text, ofOthers[index]);
    });
    showAlternatives(others);
    const detected = answer.detectedLanguage;
    $("detected").textContent = detected ? `${nameOf(detected.language)} (${Math.round(detected.confidence)} %)` : "";
    $("detected").dataset.code = detected?.language ?? "";
  } catch (error) {
    if (error.name !== "AbortError") problem(error.message);
  } finally {
    if (pending === mine) {
      pending = null;
      $("result").setAttribute("aria-busy", "false");
    }
  }
}

/** Translates after a pause in typing. */
function later() {
  clearTimeout(timer);
  pending?.abort();
  timer = setTimeout(translate, settings.frontendTimeout ?? 500);
}

function swap() {
  const source = sourceCode();
  const target = $("target").value;
  const back = languages.find((language) => language.code === target);
  if (!source || !back?.targets.includes(source)) {
    problem(`There is no translation from ${nameOf(target)}${source ? ` to ${nameOf(source)}` : ""}.`);
    return;
  }
  $("source").value = target;
  offerTargets();
  $("target").value = source;
  $("text").value = $("translation").textContent;
  translate();
}

async function translateFile(file) {
  problem("");
  const form = new FormData();
  form.append("file", file);
  form.append("source", $("source").value);
  form.append("target", $("target").value);
  if ($("key").value) form.append("api_key", $("key").value);
  $("result").setAttribute("aria-busy", "true");
  try {
    const response = await fetch("translate_file", { method: "POST", body: form });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    // The address behind a proxy may be another.
    const path = new URL(answer.translatedFileUrl).pathname.split("/").slice(-2).join("/");
    const link = document.createElement("a");
    link.href = path;
    link.download = file.name.replace(/(\.[^.]*)?$/, `.${$("target").value}$1`);
    link.textContent = link.download;
    $("translation").replaceChildren(link);
    link.click();
  } catch (error) {
    problem(error.message);
  } finally {
    $("result").setAttribute("aria-busy", "false");
  }
}

/** The source language, or the one that was detected. */
function sourceCode() {
  return $("source").value === "auto" ? $("detected").dataset.code : $("source").value;
}

/** Hides the drawings, which are of another sentence. */
function forget() {
  insideOf = null;
  $("attended").replaceChildren();
  $("attended-text").textContent = "";
  $("inside").hidden = true;
  $("drawn").hidden = true;
  $("large").hidden = true;
}

/** What the model did with the sentence shown; it is asked for once, or again after an error. */
function inside() {
  if (insideOf === null) {
    const mine = ask("inside", { q: $("text").value, source: sourceCode(), target: $("target").value });
    mine.catch(() => {
      if (insideOf === mine) insideOf = null;
    });
    insideOf = mine;
  }
  return insideOf;
}

function spanOf(text) {
  const span = document.createElement("span");
  span.textContent = text;
  return span;
}

/** Shades spans by their weights, the largest darkest. */
function shade(spans, weights) {
  const most = Math.max(...weights);
  weights.forEach((weight, index) => {
    spans[index].style.background = `color-mix(in srgb, var(--accent) ${Math.round((40 * weight) / most)}%, transparent)`;
  });
}

/** Makes the words of the translation point at the words that they come from. */
async function link() {
  const shown = $("translation").textContent;
  if ($("inside").hidden || shown === "" || $("translation").children.length > 0) return;
  const mine = inside();
  // A text of several sentences, or one with kept parts, has no such words.
  const found = await mine.catch(() => null);
  if (!found || mine !== insideOf || $("translation").textContent !== shown) return;
  if (found.target_parts.join("") !== shown) return;
  const source = words(found.source_parts);
  const target = words(found.target_parts);
  const heads = found.cross.flat();
  const spans = target.map(({ text, tokens }) => {
    const span = spanOf(text);
    span.addEventListener("mouseenter", () => point(span));
    span.weights = source.map((word) => mean(tokens.map((query) => mean(heads.map((map) => sum(word.tokens.map((key) => map[query][key])))))));
    return span;
  });
  $("translation").replaceChildren(...spans);
  $("attended").replaceChildren(...source.map(({ text }) => spanOf(text)));
}

/** Marks a word of the translation, and shades the words that it comes from. */
function point(word) {
  for (const other of $("translation").children) other.classList.toggle("pointed", other === word);
  const attended = $("attended").children;
  shade(attended, word.weights);
  const best = attended[word.weights.indexOf(Math.max(...word.weights))].textContent.trim();
  $("attended-text").textContent = `${word.textContent.trim()}, mostly from ${best}`;
}

/** The words of a text in parts: a part that begins with a space begins a word. */
function words(parts) {
  const found = [];
  parts.forEach((part, token) => {
    if (part === "") return;
    if (found.length > 0 && !/^\s/.test(part)) {
      found.at(-1).text += part;
      found.at(-1).tokens.push(token);
    } else {
      found.push({ text: part, tokens: [token] });
    }
  });
  return found;
}

async function look() {
  $("look").disabled = true;
  try {
    const found = await inside();
    $("drawn").hidden = false;
    drawTokens(found);
    const redraw = () => drawMaps(found, $("kind").value);
    $("kind").onchange = redraw;
    redraw();
    drawBeam(found.beam);
  } catch (error) {
    problem(error.message);
  } finally {
    $("look").disabled = false;
  }
}

function sum(numbers) {
  return numbers.reduce((all, number) => all + number, 0);
}

function mean(numbers) {
  return sum(numbers) / numbers.length;
}

/** The tokens; each of the target shows what it attends to. */
function drawTokens(inside) {
  const source = inside.source.map(spanOf);
  $("source-tokens").replaceChildren(...source);
  const target = inside.target.map((text, query) => {
    const token = spanOf(text);
    token.tabIndex = 0;
    const heads = inside.cross.flat();
    const weights = inside.source.map((_, key) => mean(heads.map((map) => map[query][key])));
    const best = inside.source[weights.indexOf(Math.max(...weights))];
    token.setAttribute("aria-label", `${text}, mostly from ${best}`);
    token.addEventListener("mouseenter", () => shade(source, weights));
    token.addEventListener("focus", () => shade(source, weights));
    return token;
  });
  $("target-tokens").replaceChildren(...target);
}

/** Draws a map of weights into a canvas, beside the tokens of its rows and columns if they are given. */
function paint(canvas, map, labels) {
  const context = canvas.getContext("2d");
  const margin = labels ? 90 : 0;
  const [width, height] = [(canvas.width - margin) / map[0].length, (canvas.height - margin) / map.length];
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  map.forEach((row, query) => {
    row.forEach((weight, key) => {
      context.fillStyle = `rgb(10 60 140 / ${weight})`;
      context.fillRect(margin + key * width, margin + query * height, width, height);
    });
  });
  if (!labels) return;
  context.fillStyle = "#222";
  context.font = `${Math.max(8, Math.min(15, width, height))}px sans-serif`;
  context.textBaseline = "middle";
  labels.rows.forEach((token, row) => context.fillText(token, 2, margin + (row + 0.5) * height, margin - 6));
  labels.columns.forEach((token, column) => {
    context.save();
    context.translate(margin + (column + 0.5) * width, margin - 4);
    context.rotate(-Math.PI / 2);
    context.fillText(token, 0, 0, margin - 6);
    context.restore();
  });
}

/** The tokens of the rows and columns of a map. */
function labelsOf(inside, kind) {
  // The decoder reads the tokens before the one that it predicts.
  const read = ["", ...inside.target.slice(0, -1)];
  return {
    cross: { rows: inside.target, columns: inside.source },
    encoder: { rows: inside.source, columns: inside.source },
    decoder: { rows: read, columns: read },
  }[kind];
}

function drawMaps(inside, kind) {
  const layers = inside[kind].map((heads, layer) => {
    const row = document.createElement("div");
    row.append(`layer ${layer + 1}`);
    heads.forEach((map, head) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-label", `Attention of layer ${layer + 1}, head ${head + 1}`);
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = 88;
      paint(canvas, map);
      button.append(canvas);
      const enlarge = () => {
        paint($("large").querySelector("canvas"), map, labelsOf(inside, kind));
        $("large").querySelector("figcaption").textContent = `Layer ${layer + 1}, head ${head + 1}: ${map.length} queries, ${map[0].length} keys`;
        $("large").hidden = false;
      };
      button.addEventListener("mouseenter", enlarge);
      button.addEventListener("focus", enlarge);
      row.append(button);
    });
    return row;
  });
  $("maps").replaceChildren(...layers);
}

/** Draws the beam: a column per step, a box per hypothesis. */
function drawBeam(steps) {
  const [width, height, gap] = [96, 34, 26];
  const kind = (name, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const rows = Math.max(...steps.map((step) => step.length), 1);
  const svg = kind("svg", { width: steps.length * (width + gap), height: rows * (height + 8), role: "img", "aria-label": "Hypotheses of the beam, step by step" });
  const middle = (row) => row * (height + 8) + height / 2 + 2;
  steps.forEach((step, column) => {
    const left = column * (width + gap);
    step.forEach((node, row) => {
      const mark = node.is_chosen ? "chosen" : "";
      if (column > 0) {
        svg.append(kind("line", { x1: left - gap, y1: middle(node.parent), x2: left, y2: middle(row), class: mark }));
      }
      const box = kind("g", { class: mark });
      box.append(kind("rect", { x: left + 1, y: middle(row) - height / 2, width: width - 2, height, rx: 4 }));
      box.append(kind("text", { x: left + 6, y: middle(row) - 2 }, node.token.slice(0, 12)));
      box.append(kind("text", { x: left + 6, y: middle(row) + 12, class: "score" }, node.log_prob.toFixed(2)));
      svg.append(box);
    });
  });
  $("beam").replaceChildren(svg);
}

async function start() {
  [languages, settings] = await Promise.all([
    fetch("languages").then((response) => response.json()),
    fetch("frontend/settings").then((response) => response.json()),
  ]);
  const sources = languages.filter((language) => language.targets.length > 0);
  $("source").append(...sources.map(option));
  const given = new URLSearchParams(location.search);
  if (given.get("source")) $("source").value = given.get("source");
  offerTargets();
  $("target").value = given.get("target") ?? settings.language.target.code;
  document.querySelector(".key").hidden = !settings.keyRequired;
  if (given.get("q")) {
    $("text").value = given.get("q");
    translate();
  }
}

$("form").addEventListener("submit", (event) => event.preventDefault());
$("text").addEventListener("input", later);
$("source").addEventListener("change", () => {
  offerTargets();
  translate();
});
$("target").addEventListener("change", translate);
$("key").addEventListener("change", translate);
$("look").addEventListener("click", look);
$("translation").addEventListener("mouseenter", link);
$("translation").addEventListener("focus", link);
$("translation").addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const all = [...$("translation").children].filter((word) => word.weights);
  if (!step || all.length === 0) return;
  event.preventDefault();
  const now = all.findIndex((word) => word.classList.contains("pointed"));
  const next = now < 0 ? 0 : now + step;
  point(all[Math.max(0, Math.min(all.length - 1, next))]);
});
$("swap").addEventListener("click", swap);
$("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText($("translation").textContent);
  $("copy").textContent = "Copied";
  setTimeout(() => ($("copy").textContent = "Copy"), 1500);
});
$("file-button").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => $("file").files[0] && translateFile($("file").files[0]));
for (const kind of ["dragover", "dragleave", "drop"]) {
  $("text").addEventListener(kind, (event) => {
    event.preventDefault();
    $("text").classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files[0]) translateFile(event.dataTransfer.files[0]);
  });
}
start().catch((error) => problem(error.message));
