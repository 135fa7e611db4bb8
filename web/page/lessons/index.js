// web/page/lessons/index.js: the lessons in order, in the form the page reads: long texts and code come as one string.
import { attentionScores } from "./attention_scores.js";
import { einsumHeads } from "./einsum_heads.js";
import { prefixMeans } from "./prefix_means.js";
import { selfAttention } from "./self_attention.js";
import { sixteenDimensions } from "./sixteen_dimensions.js";

/** How the lines of a list are put together, by the name the list has. */
const between = { en: " ", zh: "", python: "\n" };

/** A choice that is one string is the same in both languages. */
const choice = (text) => (typeof text === "string" ? { en: text, zh: text } : read(text, ""));

/** A whole C++ program: a file of lessons has the body of main alone. */
const program = (lines) =>
  ["#include <attn/attn.h>", "#include <iostream>", "", "int main() {", ...lines.map((line) => `  ${line}`), "}"];

/** A lesson's data, with each list of lines made one string; options stay as they are. */
function read(value, name) {
  if (name === "choices") return value.map(choice);
  if (name === "cpp") return program(value).join("\n");
  if (name in between && Array.isArray(value)) return value.join(between[name]);
  if (Array.isArray(value)) return value.map((item) => read(item, ""));
  if (name === "options" || value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, read(item, key)]));
}

/**
 * The lessons: {id, title, source, steps: [{idea, state: {text, to, options}, focus: {step, row, column, batch, head},
 * code: {cpp, python}, question: {text, choices, answer, why}}]}; every text is {en, zh}. A focus may be null, its
 * batch and head missing (0). `shows` and `check` are for tools/check_lessons.
 */
export const lessons = [selfAttention, prefixMeans, attentionScores, einsumHeads, sixteenDimensions].map((lesson) =>
  read(lesson, ""),
);
