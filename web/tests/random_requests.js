// web/tests/random_requests.js: random texts and options, the same for the same seed.

const WORDS = ['life', 'is', 'short', 'eat', 'to', 'be', 'or', 'not', '我', '猫', '猫です', 'é', 'ok.', '🙂', '<b>',
               '"q"',
  'a-b'];
const SCORES = ['s - 0.5 * (i - j)', 'tanh(s) + exp(-abs(i - j))', 'max(s, 0.1)', 's + 1.25e-1 * h', 's + ('];

/** Numbers from a seed: Knuth's linear congruential generator, its upper bits. */
export class Random {
  constructor(seed) { this.state = BigInt(seed); }
  below(count) {
    this.state = (this.state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
    return Number((this.state >> 33n) % BigInt(count));
  }
  one(list) { return list[this.below(list.length)]; }
  chance(of) { return this.below(of) === 0; }
}

function text(random, most) {
  const count = 1 + random.below(most);
  return Array.from({ length: count }, () => (random.chance(3) ? 'w' + random.below(30) : random.one(WORDS))).join(' ');
}

/** A request for Engine.explain. Some have sizes that do not fit, which both sides must refuse alike. */
export function randomRequest(random) {
  const most = random.one([4, 12, 40]);
  const options = {
    tokens: random.one(['characters', 'words', 'auto']), seed: random.below(1000), heads: 1 + random.below(3),
    dim: random.one([2, 3, 4, 8, 16]), dk: random.one([1, 2, 4, 8]), dv: random.one([1, 4, 6]),
    language: random.one(['en', 'zh']),
  };
  const sometimes = (chance, name, values) => {
    if (random.chance(chance)) options[name] = random.one(values);
  };
  sometimes(2, 'mask', ['causal', 'window(2, 1)', 'prefix(2)', '~causal', 'all', 'causal & window(3, 0)', 'none']);
  sometimes(3, 'positions', ['sinusoidal', 'rotary']);
  sometimes(3, 'bias', ['alibi', 'relative', 'alibi_symmetric']);
  sometimes(3, 'score', ['dot', 'general', 'additive']);
  sometimes(4, 'softcap', [0.5, 5, 30]);
  sometimes(3, 'temperature', [0.1, 0.7, 2.5, 1e-3, 1e9]);
  sometimes(4, 'sink', [-1, 0, 2, 100]);
  sometimes(4, 'dropout_p', [0.1, 0.3, 0.9]);
  sometimes(2, 'gradients', [true]);
  sometimes(3, 'query', [0, 1, 3, -1, 60]);
  sometimes(4, 'score_mod', SCORES);
  sometimes(5, 'cache', ['same', 'int8']);
  sometimes(6, 'weights', ['head_average', 'column_sums', 'top_k(2)', 'rows(0)']);
  sometimes(6, 'packed', [true]);
  sometimes(6, 'output_projection', [true]);
  sometimes(8, 'learned_query', [true]);
  sometimes(8, 'vocabulary', [10, 1000]);
  sometimes(8, 'only', [['weights', 'context'], ['q'], ['nothing']]);
  const request = { text: text(random, most), options };
  if (random.chance(5)) request.text = [request.text, text(random, most), text(random, most)];
  else if (random.chance(5)) request.to = text(random, most);
  return request;
}
