# web/tests/browser_numbers.py: what the page says about its numbers: their inputs, differences, parts off, gradients.
import json
import math

from browser_checks import flat, near, test


@test
def every_number_is_what_its_inputs_make(page):
    """Of each step: products and sums, as the inspector shows them, give the library's number."""
    states = ["heads=2&dim=4&causal&softcap=3&bias=alibi&temperature=2&sink=1&dropout_p=0.2&gradients&positions=rotary",
              "text=to+be+or+not&text=to+be&score=additive&positions=sinusoidal&causal&gradients",
              "text=to+be+or+not&to=be+it&score=general&heads=2&gradients&causal=top_left",
              "heads=2&weights=head_average&score=dot&gradients", "weights=column_sums",
              "weights=top_k(2)", "heads=2&output_projection&gradients",
              "learned_query&heads=2&score=additive&gradients", "query=2&causal&heads=2", "query=1&score=additive",
              "text=to+be+or+not&batch&heads=2&causal&gradients&weights=column_sums&query=1&output_projection",
              "text=to+be+or+not&batch&learned_query", "positions=rotary&dk=4&heads=2&gradients",
              "text=to+be+or+not&batch&positions=rotary&dk=8&heads=2"]
    script = """(async () => {
      const {explanation} = attn.page, found = {steps: {}, wrong: []};
      for (const step of explanation.steps) {
        if (step.kind === 'words' || step.kind === 'checks') continue;
        for (let b = 0; b < step.batch; ++b) for (let h = 0; h < step.heads; ++h)
          explanation.matrix(step, b, h).forEach((row, i) => row.forEach((value, j) => {
            const made = attn.trace({step: step.name, sentence: b, head: h, row: i, column: j});
            if (!made) return;
            found.steps[step.name] = (found.steps[step.name] || 0) + 1;
            const off = made.value === null || value === null ? (made.value === value ? 0 : value === 0 ? 0 : 1)
              : Math.abs(made.value - value) / Math.max(1, Math.abs(value));
            if (!(off < 2e-5)) found.wrong.push([step.name, b, h, i, j, value, made.value]);
          }));
      }
      return found;
    })()"""
    seen = {}
    for state in states:
        page.open(state)
        found = page.run(script)
        assert not found["wrong"], found["wrong"][:4]
        seen |= found["steps"]
    missing = {"q", "scores", "scaled", "capped", "biased", "tempered", "mask", "weights", "sink", "dropped", "context",
               "joined", "output", "query_scores",
               "query_values", "d_v", "d_weights", "d_scores", "d_q", "d_k"} - seen.keys()
    assert not missing, missing


@test
def pointing_marks_and_takes_apart(page):
    page.open("causal", height=2600)
    page.hover("scores", 3, 1)
    place = page.report("inspected")
    assert (place["step"], place["row"], place["column"]) == ("scores", 3, 1)
    q, k = page.step("q")["values"], page.step("k")["values"]
    assert near(page.report("made")["value"], sum(a * b for a, b in zip(q[3], k[1])))
    for number in (q[3][0], k[1][1]):
        assert f"{number:.4f}".replace("-", "−") in page.inspector(), page.inspector()
    marks = page.run("""Object.fromEntries([...attn.page.steps.blocks].map(([name, {view}]) => [name,
      Object.entries(view.marks).filter(([, e]) => !e.hidden).map(([kind]) => kind)]))""")
    assert marks["scores"] == ["row", "column", "cell"] and "row" in marks["q"] and "inputs" in marks["k"], marks
    assert "column" in marks["weights"] and "row" in marks["v"], marks
    page.hover("weights", 0, 4)
    assert "comes after" in page.inspector(), page.inspector()
    page.hover("weights", 3, 1)
    assert "÷ Σ" in page.inspector()


@test
def a_query_worked_out_shows_its_own_numbers(page):
    page.open("query=2", height=2600)
    weights, v = page.step("weights")["values"], page.step("v")["values"]
    page.hover("query_values", 1, 2)
    for number in (weights[2][1], v[1][1]):
        assert f"{number:.4f}".replace("-", "−") in page.inspector(), page.inspector()
    q, k, scores = (page.step(name)["values"] for name in ("q", "k", "scores"))
    page.hover("query_scores", 2, 0)
    for number in (q[2][0], k[2][0]):
        assert f"{number:.4f}".replace("-", "−") in page.inspector(), page.inspector()
    page.hover("query_scores", 2, 5)
    for number in (scores[2][2], weights[2][2]):
        assert f"{number:.4f}".replace("-", "−") in page.inspector(), page.inspector()


@test
def pins_step_back_and_let_go(page):
    page.open()
    page.pin("context", 1, 2)
    assert page.report("state.pin") == {"step": "context", "row": 1, "column": 2}
    page.hover("weights", 4, 4)
    assert page.report("inspected")["step"] == "context", "what is pinned gives way to the pointer"
    page.click("#inspector .factor")
    assert page.report("state.pin")["step"] == "weights"
    page.click("#inspector .factor", 1)
    assert page.report("state.pin")["step"] == "scaled"
    page.key("Backspace")
    assert page.report("state.pin")["step"] == "weights"
    page.button("← context")
    assert page.report("state.pin")["step"] == "context"
    assert "pin=context,1,2" in page.report("hash")
    page.key("Escape")
    assert page.report("state.pin") is None
    page.pin("q", 0, 0)
    page.pin("q", 0, 0)
    assert page.report("state.pin") is None


@test
def keys_move_in_a_matrix(page):
    page.open()
    page.pin("scores", 0, 0)
    page.key("Escape")
    page.run("document.querySelector('[data-step=scores] td[tabindex=\"0\"]').focus()")
    page.key("ArrowRight", 2)
    page.key("ArrowDown")
    place = page.report("inspected")
    assert (place["step"], place["row"], place["column"]) == ("scores", 1, 2), place
    page.key("Enter")
    assert page.report("state.pin") == {"step": "scores", "row": 1, "column": 2}
    page.key("End")
    page.key("Escape")
    tabs = page.run("document.querySelectorAll('[data-step=scores] td[tabindex=\"0\"]').length")
    assert tabs == 1, tabs


@test
def before_and_after(page):
    page.open("temperature=1")
    was = page.report("shown('weights')")
    page.panel("compare")
    page.button("Hold this state")
    page.panel("score")
    page.set("temperature", "0.5")
    page.same_as_command()
    now, shown = page.step("weights")["values"], page.report("shown('weights')")
    assert all(near(s, a - b) for s, a, b in zip(flat(shown), flat(now), flat(was)))
    assert page.run("attn.report().mode('weights')") == "difference"
    page.panel("compare")
    page.set("shown", "before")
    assert page.report("shown('weights')") == was
    page.set("shown", "after")
    assert page.report("shown('weights')") == now
    hash_now = page.report("hash")
    page.set("compare", "")
    page.open(hash_now.replace("&shown=after", ""))
    assert all(near(s, a - b) for s, a, b in zip(flat(page.report("shown('weights')")), flat(now), flat(was)))
    page.open("heads=2&compare=head:1")
    weights = page.step("weights")["values"]
    assert all(near(s, a - b) for s, a, b in zip(flat(page.report("shown('weights')")), flat(weights[0]),
                                               flat(weights[1])))


@test
def what_is_compared_is_named(page):
    badge = "document.querySelector('.step:not([data-mode=plain]) .badge').textContent"
    choices = "[...document.querySelector('[data-field=shown] select').options].map(e => e.textContent)"

    def check(held, now):
        page.set("shown", "difference")
        assert page.run(badge) == f"{now} − {held}", page.run(badge)
        assert page.run(choices) == [f"{now} − {held}", held, now, "side by side"], page.run(choices)
        page.pin("weights", 1, 2)
        text = page.inspector()
        assert f"{held}: " in text and f"{now}: " in text, text
        page.set("shown", "before")
        assert page.run(badge) == held, page.run(badge)

    page.open("heads=2&before=temperature%3D2&compare=before")
    page.panel("compare")
    check("the held state", "the state now")
    page.open("heads=2&head=1&compare=head:0")
    page.panel("compare")
    check("head 0", "head 1")
    page.open("off-keys=1&compare=before")
    page.panel("compare")
    check("everything on", "parts off")
    page.click("#language")
    assert "全部打开时" in page.run(choices) and "并排" in page.run(choices)


@test
def heads_side_by_side(page):
    page.open("heads=4")
    assert page.run("document.querySelectorAll('.heads button').length") == 4
    page.click(".heads button", 2)
    assert page.report("state.head") == 2
    assert page.report("shown('weights')") == page.step("weights")["values"][2]
    assert page.run("document.querySelectorAll('.heads button[aria-pressed=true]').length") == 1


@test
def switching_off(page):
    page.open("heads=2")
    weights, v = page.step("weights")["values"][0], page.step("v")["values"][0]
    page.pin("weights", 1, 2)
    page.button("Key “short” off")
    shown = page.report("shown('weights')")
    assert all(row[2] is None for row in shown)
    rest = [w for j, w in enumerate(weights[1]) if j != 2]
    assert near(shown[1][0], rest[0] / sum(rest))
    masked = json.loads(page.command("explain", "--json", "Life is short, eat dessert first", "--heads", "2", "--mask",
                                     "prefix(2) | ~prefix(3)"))
    steps = {step["name"]: step["values"] for step in masked["steps"]}
    for name in ("weights", "context"):
        assert all(near(a, b) for a, b in zip(flat(page.report(f"shown('{name}')")), flat(steps[name][0]))), name
    assert all(near(a, b) for a, b in zip(flat(page.report("shown('joined')")), flat(steps["joined"])))
    assert "Computed on this page" in page.inspector()
    page.panel("compare")
    page.button("Switch everything on")
    assert page.report("shown('weights')") == weights
    page.pin("weights", 0, 0)
    page.button("This weight off")
    want = sum(weights[0][j] * v[j][1] for j in range(1, 6))
    assert near(page.report("shown('context')")[0][1], want)
    page.button("This weight off")
    page.button("Head 0 off")
    assert flat(page.report("shown('context')")) == [0] * 24
    joined = page.report("shown('joined')")
    assert joined[0][:4] == [0] * 4 and joined[0][4] != 0
    page.same_as_command()


@test
def what_is_off_is_taken_apart_as_it_is_shown(page):
    """Products and sums under a number make that number, with a key, a weight or a head off, in every comparison."""
    states = ["off-keys=1", "off-weights=1.2,3.3", "off-heads=0&heads=2&output_projection",
              "off-keys=1&off-weights=2.0&off-heads=1&heads=2&head=1&causal&sink=1&dropout_p=0.2&softcap=2",
              "off-keys=0&causal", "off-keys=0,1,2,3,4,5&sink=1", "off-keys=2&heads=2&weights=head_average",
              "off-keys=2&weights=column_sums", "off-weights=1.2&weights=column_sums&gradients", "off-keys=1&query=2",
              "text=to+be+or+not&to=be+it&off-keys=1", "text=to+be+or+not&text=to+be&batch&off-keys=1&sentence=1",
              "off-keys=1&temperature=0.001", "off-keys=1&compare=before", "off-keys=1&compare=before&shown=before",
              "off-keys=1&compare=before&shown=after", "off-keys=1&compare=before&shown=both",
              "heads=2&off-heads=1&compare=head:1", "heads=2&off-keys=1&compare=head:1&shown=before",
              "off-keys=1&pin=context,3,1&pull"]
    script = """(() => {
      const {display, explanation, inspector} = attn.page, found = {cells: 0, wrong: []};
      for (const step of explanation.steps) {
        if (step.kind === 'words' || step.kind === 'checks' || step.kind === 'ids') continue;
        const mode = display.mode(step);
        if (mode === 'stale' || mode === 'pull') continue;  // the library's numbers, and said so
        const values = mode === 'difference' ? display.plain(step) : display.values(step);
        values.forEach((row, i) => row.forEach((value, j) => {
          const made = inspector.show(display, {step: step.name, row: i, column: j}, {pinned: true, history: []});
          if (!made) return;
          ++found.cells;
          const text = inspector.body.textContent, same = made.value === value || made.value === null && value === 0 ||
            Math.abs(made.value - value) <= 2e-5 * Math.max(1, Math.abs(value));
          const off = mode === 'off' && text.includes('The library');
          if (!same || off || text.includes('undefined')) found.wrong.push([step.name, mode, i, j, value, made.value]);
        }));
      }
      return found;
    })()"""
    for state in states:
        page.open(state)
        found = page.run(script)
        assert found["cells"] > 30 or "pull" in state, (state, found["cells"])
        assert not found["wrong"], (state, found["wrong"][:4])
    page.open("off-keys=1&pin=context,3,1", height=2600)
    shown = page.run("document.querySelector('#inspector .value').textContent").replace("−", "-")
    total = page.run("[...document.querySelectorAll('#inspector .terms .result')].pop().textContent")
    assert total == f"= {float(shown):.4f}".replace("-", "−"), (shown, total)
    terms = page.run("document.querySelectorAll('#inspector .terms tr').length")
    assert terms == 6, f"{terms} rows: five keys and their sum"
    page.pin("weights", 3, 0)
    share = page.run("document.querySelector('#inspector .softmax .chosen td:last-child').textContent")
    shown = page.run("document.querySelector('#inspector .value').textContent")
    assert share == f"{float(shown):.4f}", (share, shown)
    assert page.run("[...document.querySelectorAll('#inspector .softmax tr')][2].textContent").startswith("is⊘")
    page.open("off-heads=0&heads=2&pin=context,3,1")
    assert "The head is off" in page.inspector() and page.report("made")["value"] == 0
    page.open("off-weights=3.1&pin=weights,3,1")
    assert "This weight is off" in page.inspector() and page.report("made")["value"] == 0
    page.open("off-keys=1&pin=weights,3,1")
    assert "The key is off" in page.inspector()


@test
def what_off_does_to_the_sum_of_a_row(page):
    legend = "document.querySelector('.legend').innerText"
    page.open("off-weights=1.2")
    total = sum(w for j, w in enumerate(page.step("weights")["values"][1]) if j != 2)
    assert f"its row no longer adds up to 1 (“is” to {total:.4f})" in page.run(legend), page.run(legend)
    assert near(sum(page.report("shown('weights')")[1]), total)
    page.pin("weights", 1, 0)
    assert "no longer adds up to 1" in page.inspector(), page.inspector()
    page.open("off-keys=0&causal")
    assert "each row still adds up to 1" in page.run(legend) and "no weights" in page.run(legend), page.run(legend)
    assert all(near(sum(w or 0 for w in row), 1) for row in page.report("shown('weights')")[1:])
    page.open("off-keys=0&off-weights=1.2&sink=1")
    shown, sink = page.report("shown('weights')")[1], page.report("shown('sink')")[1][0]
    assert f"its row with its sink no longer adds up to 1 (“is” to {sum(w or 0 for w in shown) + sink:.4f})" in \
        page.run(legend), page.run(legend)
    page.open("off-heads=0&heads=2")
    assert page.run(legend) == ""


@test
def gradients_and_pulls(page):
    page.open("gradients&causal&heads=2&softcap=2&positions=rotary")
    page.same_as_command()
    context, d_q, d_v = (page.step(name)["values"][0] for name in ("context", "d_q", "d_v"))
    total_q, total_v = [[0.0] * 2 for _ in range(6)], [[0.0] * 4 for _ in range(6)]
    for i in range(6):
        for d in range(4):
            page.run(f"attn.page.state.pin = {{step: 'context', row: {i}, column: {d}}}; attn.page.state.pull = true;"
                     "attn.page.draw()")
            pulled = page.run("""['q_turned', 'v'].map(name => attn.page.display.values(
              attn.page.explanation.step(attn.page.explanation.step(name) ? name : 'q_rotated')))""")
            for total, matrix in zip((total_q, total_v), pulled):
                for row in range(6):
                    for column in range(len(total[0])):
                        total[row][column] += context[i][d] * matrix[row][column]
    assert all(near(a, b) for a, b in zip(flat(total_q), flat(d_q)))
    assert all(near(a, b) for a, b in zip(flat(total_v), flat(d_v)))
    page.open()
    page.pin("context", 2, 1)
    page.button("What moves it?")
    assert page.run("attn.report().mode('weights')") == "pull"
    v = page.step("v")["values"]
    assert all(near(page.report("shown('weights')")[2][j], v[j][1]) for j in range(6))
    page.key("Escape")
    assert page.run("attn.report().mode('weights')") == "plain"


@test
def chosen_tokens_have_a_sum_and_an_entropy(page):
    page.open()
    page.click(".chips button", 1)
    page.click(".chips button", 4)
    weights = page.step("weights")["values"]
    shown = page.run("attn.page.steps.sections.get([...attn.page.steps.sections.keys()]"
                     ".find(k => k === 'weights')).chosen.values")
    for row, (total, entropy) in zip(weights, shown):
        assert near(total, row[1] + row[4]) and near(entropy, -sum(w * math.log2(w) for w in row))
    assert "chosen=1,4" in page.report("hash")
