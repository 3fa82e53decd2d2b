// The tabs Samples and Files of a run: texts that its model has generated, and files that it has written.
import { empty, h, replace, toast } from "./dom.js";
import { getBlob } from "./api.js";
import { download } from "./exports.js";
import { bytes, integer, when } from "./format.js";

/** A recorded file of a run, {path, bytes}, to be saved. It is no link, because a browser does not send the token with one. */
export function fileButton(id, { path, bytes: size }) {
  if (size === null) return h("span.mono", path);
  const save = async () => {
    button.disabled = true;
    try {
      download(path.replace(/^.*\//, ""), URL.createObjectURL(await getBlob(`runs/${id}/file`, { path })));
    } catch (error) {
      toast(error.message, "error");
    }
    button.disabled = false;
  };
  const button = h("button.link.mono", { type: "button", title: "Save this file", onclick: save }, path);
  return button;
}

/** A table of the newest rows, drawn again when what `listOf(run)` says has changed. `row`: the cells of one of its elements. */
function listTab(box, { kind, titles, listOf, row, nothing }, run) {
  let drawn = null;
  const draw = (newest) => {
    const list = listOf(newest), now = JSON.stringify(list);
    if (now === drawn) return;
    drawn = now;
    const head = titles.map(([title, number]) => h(number ? "th.num" : "th", title));
    const body = list.reverse().slice(0, 1000).map((one) => h("tr", row(one)));
    replace(box, body.length ? h("div.scroll-x", h(`table.dense.${kind}`, h("thead", h("tr", head)), h("tbody", body))) : nothing);
  };
  draw(run);
  return { refresh: draw };
}

export const samplesOf = (run) => run.events.filter((event) => event.event === "sample");

/** What was generated, and from what, with its lines. Samples of older programs have no prompt. */
export function samplesTab(box, run) {
  const words = (value) => (Array.isArray(value) ? value.join(" ") : String(value ?? ""));
  return listTab(box, {
    kind: "samples",
    titles: [["Step", true], ["Prompt"], ["Text"]],
    listOf: samplesOf,
    row: ({ step, prompt, text, tokens }) => [
      h("td.num", integer(step)),
      h("td.whole.muted", words(prompt)),
      h("td.whole", words(text ?? tokens).trim()),
    ],
    nothing: empty("No samples", 'With files = ["sample_generation"] in its section [hooks], a recipe has a text after each validation.'),
  }, run);
}

/** Artifacts, traces and checkpoints. A checkpoint is a folder, so it cannot be saved here. */
export function filesTab(box, run) {
  const checkpoints = ({ checkpoints }) => checkpoints.map((one) => ({ ...one, kind: "checkpoint", folder: true }));
  const state = (file) => (file.folder ? (file.exists ? "" : "deleted") : file.bytes === null ? "not in the run's folder" : "");
  return listTab(box, {
    kind: "files",
    titles: [["File"], ["Kind"], ["Step", true], ["Size", true], ["Time", true], [""]],
    listOf: (run) => [...checkpoints(run), ...run.files].sort((a, b) => a.time - b.time),
    row: (file) => [
      h("td", file.folder ? h("span.mono", file.path) : fileButton(run.id, file)),
      h("td", file.kind),
      h("td.num", integer(file.step)),
      h("td.num", bytes(file.bytes)),
      h("td.num", when(file.time)),
      h("td.muted", state(file)),
    ],
    nothing: empty("No files", "The run has written no checkpoint and no artifact."),
  }, run);
}
