# tests/golden/autograd/make.py: writes views.json with PyTorch 2.13.0 (CPU): programs of views and changes in place, and their gradients.
#
# A program is a list of statements, each a line of words: `name = operation tensor numbers or tensors`, or an operation in place. Numbers
# are small integers in float64, so every figure is exact. `gradients` are those of the leaves for the loss that adds up, over the
# statements `loss x`, x times 1, 2, 3, ... in row-major order; `error` is `saved` where torch finds a saved tensor changed, `refused`
# where it does not allow the change. Where `by` is given torch refuses the program itself, and the figures are those of the same program
# with these statements in place of those that it refuses (a clone or a slice where the program has the tensor itself or one of several views).
import json
import pathlib
import random

import torch


def counted(sizes, start=1):
    count = 1
    for size in sizes:
        count *= size
    values = [(start + n) % 5 + 1 for n in range(count)]
    return torch.tensor(values, dtype=torch.float64).reshape(sizes).clone()


VIEWS = {
    "select": lambda x, dim, index: x.select(dim, index),
    "slice": lambda x, dim, start, end, step: x[(slice(None),) * dim + (slice(start, end, step),)],
    "transpose": lambda x, a, b: x.transpose(a, b),
    "view": lambda x, *sizes: x.view(sizes),
    "expand": lambda x, *sizes: x.expand(sizes),
    "unsqueeze": lambda x, dim: x.unsqueeze(dim),
    "squeeze": lambda x, dim: x.squeeze(dim),
    "permute": lambda x, *order: x.permute(order),
    "part": lambda x, size, dim, which: x.split(size, dim)[which],
    "detach": lambda x: x.detach(),
}


class Machine:
    def __init__(self):
        self.tensors, self.leaves, self.losses, self.guard = {}, [], [], None

    def value(self, word):
        return self.tensors[word] if word in self.tensors else int(word)

    def run(self, line):
        words = line.split()
        if words[0] in ("leaf", "plain"):
            x = counted([int(word) for word in words[2:]], len(self.tensors))
            self.tensors[words[1]] = x.requires_grad_() if words[0] == "leaf" else x
            if words[0] == "leaf":
                self.leaves.append(words[1])
        elif words[0] in ("no_grad", "grad"):
            torch.set_grad_enabled(words[0] == "grad")
        elif words[0] == "loss":
            self.losses.append(words[1])
        elif words[0] == "requires_grad_":
            self.tensors[words[1]].requires_grad_()
            self.leaves.append(words[1])
        elif words[0] == "retain":
            self.tensors[words[1]].retain_grad()
            self.leaves.append(words[1])
        elif words[0] == "backward":
            self.backward()
        elif words[1] == "=":
            name, operation, of = words[0], words[2], self.tensors[words[3]]
            rest = [self.value(word) for word in words[4:]]
            if operation in VIEWS:
                result = VIEWS[operation](of, *rest)
            else:
                result = {"mul": torch.mul, "add": torch.add, "clone": torch.clone, "sum": torch.sum}[operation](of, *rest)
            self.tensors[name] = result
        else:
            getattr(self.tensors[words[1]], words[0])(self.value(words[2]))

    def backward(self):
        total = 0
        for name in self.losses:
            x = self.tensors[name]
            total = total + (x * torch.arange(1, x.numel() + 1, dtype=x.dtype).reshape(x.shape)).sum()
        if not self.losses:
            return
        self.losses = []
        total.backward(retain_graph=True)

    def gradients(self):
        result = {}
        for name in self.leaves:
            grad = self.tensors[name].grad
            result[name] = None if grad is None else grad.reshape(-1).tolist()
        return result


def outcome(program):
    machine = Machine()
    try:
        for line in program:
            machine.run(line)
        machine.backward()
        return {"gradients": machine.gradients()}
    except (RuntimeError, IndexError) as error:
        text = str(error)
        if "has been modified by an inplace operation" in text and "needed for gradient" in text:
            return {"error": "saved"}
        return {"error": "refused", "torch": text.split(". ")[0].split("\n")[0]}
    finally:
        torch.set_grad_enabled(True)


NAMED = {
    "view taken, then the base changed": "leaf a 2 3; x = mul a 2; v = select x 0 0; mul_ x 3; loss v",
    "both read after": "leaf a 2 3; x = mul a 2; v = select x 0 0; mul_ x 3; loss v; loss x",
    "base changed by a tensor": "leaf a 2 3; leaf w 3; x = mul a 2; v = select x 0 1; mul_ x w; loss v",
    "base overwritten": "leaf a 2 3; leaf b 2 3; x = mul a 2; v = select x 0 1; copy_ x b; loss v",
    "base filled": "leaf a 2 3; x = mul a 2; v = select x 0 1; y = mul v 3; fill_ x 7; loss v; loss y; loss x",
    "view changed, then the base read": "leaf a 2 3; x = mul a 2; v = select x 0 0; mul_ v 3; loss x",
    "view changed by a tensor": "leaf a 2 3; leaf w 3; x = mul a 2; v = select x 0 0; mul_ v w; loss x",
    "view overwritten": "leaf a 2 3; leaf b 3; x = mul a 2; v = select x 0 0; copy_ v b; loss x",
    "view filled": "leaf a 2 3; x = mul a 2; v = select x 0 0; fill_ v 3; loss x",
    "a plain base takes up what its view is given": "leaf w 3; plain x 2 3; v = select x 0 1; mul_ v w; loss x",
    "a plain base built row by row": "leaf a 3; plain x 3 3; r = select x 0 0; copy_ r a; s = select x 0 1; t = mul r 2; copy_ s t; u = select x 0 2; add_ u a; loss x",
    "a running sum in place": "leaf a 4; x = mul a 1; p = select x 0 0; q = select x 0 1; add_ q p; r = select x 0 2; add_ r q; s = select x 0 3; add_ s r; loss x",
    "view of a view, base changed": "leaf a 2 3 2; x = mul a 2; v = select x 0 1; u = slice v 0 0 3 2; mul_ x 3; loss u",
    "view of a view changed": "leaf a 2 3 2; leaf w 2; x = mul a 2; v = transpose x 0 1; u = slice v 0 0 3 2; mul_ u w; loss x; loss v",
    "the view between changed": "leaf a 2 3 2; x = mul a 2; v = select x 0 1; u = slice v 0 1 3 1; mul_ v 5; loss u; loss x",
    "sibling changed, other read": "leaf a 2 3; leaf w 3; x = mul a 2; v = select x 0 0; u = slice x 1 0 2 1; mul_ v w; loss u",
    "siblings changed in turn": "leaf a 2 3; x = mul a 2; v = select x 0 0; u = slice x 1 0 2 1; mul_ v 3; mul_ u 5; mul_ v 2; loss x; loss v; loss u",
    "siblings apart": "leaf a 2 3; x = mul a 2; v = select x 0 0; u = select x 0 1; mul_ v 3; loss u",
    "sibling added to sibling": "leaf a 2 3; x = mul a 1; v = select x 0 0; u = select x 0 1; add_ u v; loss x",
    "what was computed before keeps its gradient": "leaf a 2 3; x = mul a 2; v = select x 0 0; y = mul v 3; mul_ x 5; loss y; loss v",
    "saved view, base changed": "leaf a 2 3; x = mul a 2; v = select x 0 0; y = mul v v; mul_ x 2; loss y",
    "saved base, view changed": "leaf a 2 3; x = mul a 2; y = mul x x; v = select x 0 0; mul_ v 2; loss y",
    "saved view, sibling elsewhere changed": "leaf a 2 3; x = mul a 2; v = select x 0 0; y = mul v v; u = select x 0 1; mul_ u 2; loss y",
    "saved factor changed through a view": "leaf a 2 3; plain w 2 3; y = mul a w; v = select w 0 0; mul_ v 2; loss y",
    "saved by the change itself, changed after": "leaf a 2 3; leaf w 3; x = mul a 2; u = mul w 1; v = select x 0 0; mul_ v u; mul_ u 2; loss x",
    "leaf changed": "leaf a 2 3; mul_ a 2; loss a",
    "view of a leaf changed": "leaf a 2 3; v = select a 0 0; mul_ v 2; loss a",
    "part of a leaf overwritten by a tensor": "leaf a 2 3; leaf b 3; v = select a 0 0; copy_ v b; loss a",
    "leaf changed without the tape, view taken before": "leaf a 2 3; v = select a 0 1; no_grad; mul_ a 2; grad; y = mul v v; loss y",
    "result changed without the tape": "leaf a 2 3; x = mul a 2; v = select x 0 0; no_grad; mul_ x 2; grad; y = mul v v; loss y",
    "view changed without the tape": "leaf a 2 3; x = mul a 2; v = select x 0 0; no_grad; mul_ v 2; grad; y = mul x x; loss y",
    "detached, changed, what was saved": "leaf a 2 3; x = mul a 2; y = mul x x; d = detach x; mul_ d 2; loss y",
    "detached, changed, view read": "leaf a 2 3; x = mul a 2; v = select x 0 0; d = detach v; mul_ d 2; loss v",
    "detached, changed by a tensor": "leaf a 2 3; leaf w 3; x = mul a 2; d = detach x; mul_ d w; loss d; loss x",
    "detached view as a base of its own": "leaf a 2 3; leaf w 2; x = mul a 2; d = transpose x 0 1; e = detach d; v = select e 0 1; mul_ v w; loss e",
    "transposed base": "leaf a 2 3; leaf w 2; x = mul a 2; v = transpose x 0 1; u = select v 0 2; mul_ u w; loss v; loss x",
    "step": "leaf a 7; leaf w 3; x = mul a 2; v = slice x 0 1 6 2; mul_ v w; loss x; loss v",
    "empty view changed": "leaf a 2 3; x = mul a 2; v = slice x 0 1 1 1; mul_ v 5; loss x; loss v",
    "empty base changed": "leaf a 0 3; x = mul a 2; v = view x 3 0; mul_ x 5; loss v",
    "expanded view read after the base changed": "leaf a 1 3; x = mul a 2; v = expand x 4 3; mul_ x 3; loss v",
    "column of an expanded view": "leaf a 1 3; x = mul a 2; v = expand x 4 3; u = select v 1 2; mul_ x 3; loss u",
    "expanded view changed": "leaf a 1 3; x = mul a 2; v = expand x 4 3; mul_ v 3; loss x",
    "expanded view filled": "leaf a 2 3; x = mul a 2; u = slice x 0 0 1 1; v = expand u 4 3; fill_ v 3; loss x",
    "another shape": "leaf a 2 6; leaf w 3 4; x = mul a 2; v = view x 3 4; mul_ v w; u = select x 0 1; loss u",
    "a scalar's place": "leaf a 2 3; x = mul a 2; r = select x 0 1; v = select r 0 2; mul_ v 5; loss x; loss r",
    "unsqueezed, permuted": "leaf a 2 3 4; leaf w 3; x = mul a 2; v = permute x 2 0 1; u = unsqueeze v 0; t = select u 1 1; mul_ t w; loss x; loss u",
    "the whole as a view": "leaf a 2 3; leaf w 2 3; x = mul a 2; v = view x 6; u = view x 2 3; mul_ u w; loss v",
    "retained base, view changed": "leaf a 2 3; x = mul a 2; retain x; v = select x 0 0; mul_ v 3; loss x",
    "retained view, base changed": "leaf a 2 3; x = mul a 2; v = select x 0 0; retain v; mul_ x 3; loss v",
    "backward twice": "leaf a 2 3; leaf w 3; x = mul a 2; v = select x 0 0; mul_ v w; loss x; backward; loss v",
    "parts read after the base changed": "leaf a 4 3; x = mul a 2; v = part x 2 0 1; mul_ x 3; loss v",
    "a part changed": "leaf a 4 3; leaf w 3; x = mul a 2; v = part x 2 0 1; mul_ v w; loss x",
    "times itself": "leaf a 3; x = mul a 2; mul_ x x; loss x",
    "by itself": "leaf a 3; x = mul a 2; div_ x x; loss x",
    "plus itself": "leaf a 3; x = mul a 2; add_ x x; loss x",
    "a view times itself": "leaf a 2 3; x = mul a 2; v = select x 0 1; mul_ v v; loss x; loss v",
    "times its own row": "leaf a 2 3; x = mul a 2; v = select x 0 1; mul_ x v; loss x; loss v",
    "row times the other row": "leaf a 2 3; x = mul a 2; v = select x 0 1; u = select x 0 0; mul_ u v; loss x",
    "view made under no_grad changed": "leaf a 2 3; leaf w 3; x = mul a 2; no_grad; v = select x 0 0; grad; mul_ v w; loss x",
    "view made under no_grad of a plain tensor changed by a tensor": "leaf w 3; plain x 2 3; no_grad; v = select x 0 0; grad; mul_ v w; loss x; loss v",
}
# What torch refuses and attn does not: the same without what it refuses.
BY = {
    "expanded view filled": "leaf a 2 3; x = mul a 2; u = slice x 0 0 1 1; fill_ u 3; loss x",
    "parts read after the base changed": "leaf a 4 3; x = mul a 2; v = slice x 0 2 4 1; mul_ x 3; loss v",
    "a part changed": "leaf a 4 3; leaf w 3; x = mul a 2; v = slice x 0 2 4 1; mul_ v w; loss x",
    "times itself": "leaf a 3; x = mul a 2; y = mul x x; loss y",
    "by itself": "leaf a 3; x = mul a 2; y = clone x; div_ x y; loss x",
    "a view times itself": "leaf a 2 3; x = mul a 2; v = select x 0 1; y = clone v; mul_ v y; loss x; loss v",
    "times its own row": "leaf a 2 3; x = mul a 2; v = select x 0 1; y = clone v; mul_ x y; loss x; loss v",
    "row times the other row": "leaf a 2 3; x = mul a 2; v = select x 0 1; u = select x 0 0; y = clone v; mul_ u y; loss x",
}


def random_program(seed):
    """A dozen statements over one base, its views and what is computed of them, and the same for torch, with a clone where a product with a
    tensor's own memory is taken in place; statements that torch refuses are drawn again."""
    draw = random.Random(seed)
    lines = ["leaf a 2 3 4", "leaf w 1", "x = mul a 2" if draw.random() < 0.7 else "plain x 2 3 4"]
    by = list(lines)
    machine = Machine()
    for line in lines:
        machine.run(line)
    shows, computed = ["x"], []
    while len(lines) < 15:
        of = draw.choice(shows)
        x, name = machine.tensors[of], f"t{len(lines)}"
        kind = draw.random()
        if kind < 0.35 and x.dim() > 0:
            dim = draw.randrange(x.dim())
            size = x.shape[dim]
            line = draw.choice([f"select {of} {dim} {draw.randrange(size)}" if size else "", f"slice {of} {dim} {draw.randrange(size + 1)} {size} {draw.choice([1, 1, 2])}",
                                f"transpose {of} {dim} {draw.randrange(x.dim())}", f"unsqueeze {of} {dim}" if x.dim() < 5 else "",
                                f"view {of} {x.numel()}" if x.is_contiguous() else "", f"expand {of} 2 {' '.join(str(s) for s in x.shape)}" if x.dim() < 5 else ""])
            line = line and f"{name} = {line}"
        elif kind < 0.5:
            line = f"{name} = {draw.choice(['add', 'mul'])} {of} {draw.choice(['2', 'w', of])}"
        elif kind < 0.9:
            other = draw.choice(["2", "3", "w", draw.choice(shows + computed)])
            line = f"{draw.choice(['mul_', 'mul_', 'add_', 'copy_'])} {of} {other}" if draw.random() < 0.9 else f"fill_ {of} 2"
            if line.startswith("copy_") and other in "23":
                line = ""
        else:
            line = draw.choice([f"loss {of}", f"{name} = detach {of}", f"{name} = clone {of}"])
        if not line:
            continue
        if "= detach" in line and draw.random() < 0.7:
            continue
        torchs = [line]
        if line.startswith("mul_") and other in machine.tensors and machine.tensors[other].untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
            torchs = [f"c{len(lines)} = clone {other}", f"mul_ {of} c{len(lines)}"]
        trial = outcome(by + torchs)
        if trial.get("error") == "refused" and "does not require grad" not in trial["torch"] and "has no attribute" not in trial["torch"]:
            continue
        try:
            for statement in torchs:
                machine.run(statement)
        except RuntimeError:
            continue
        lines.append(line)
        by += torchs
        if " = " in line:
            operation = line.split()[2]
            (shows if operation in VIEWS else computed).append(name)
            if operation in ("add", "mul", "clone") and draw.random() < 0.3:
                shows.append(name)
    losses = [f"loss {name}" for name in draw.sample(shows + computed, min(3, len(shows + computed)))] + ["loss x"]
    return lines + losses, by + losses


def case(name, program, by=None):
    result = {"name": name, "program": program}
    if by:
        result["by"] = by
    result.update(outcome(by or program))
    return result


def largest(result):
    return max((abs(v) for values in result.get("gradients", {}).values() for v in values or []), default=0)


def main():
    split = lambda text: [line.strip() for line in text.split(";")]
    cases = [case(name, split(program), split(BY[name]) if name in BY else None) for name, program in NAMED.items()]
    seed, drawn = 0, []
    while len(drawn) < 300:
        seed += 1
        program, by = random_program(seed)
        drawn.append(case(f"drawn {seed}", program, by if by != program else None))
        if drawn[-1].get("error") == "refused" or largest(drawn[-1]) > 2**50:
            drawn.pop()
    text = ",\n".join(json.dumps(c) for c in cases + drawn)
    path = pathlib.Path(__file__).with_name("views.json")
    path.write_text(f'{{"made_by": "make.py, PyTorch {torch.__version__}", "cases": [\n{text}\n]}}\n')
    for c in cases:
        print(c["name"], "->", c.get("error") or c["gradients"], c.get("torch", ""))
    print(len(drawn), sum("error" in c for c in drawn))


main()
