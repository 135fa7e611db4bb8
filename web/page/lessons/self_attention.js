// web/page/lessons/self_attention.js: a lesson: one sentence goes through one attention head.
export const selfAttention = {
  "id": "self_attention",
  "title": {"en": "One sentence, one head", "zh": "一句话，一个注意力头"},
  "source": "examples/self_attention.cc",
  "steps": [
    {
      "idea": {
        "en": ["A model does not read letters: the text is first cut into tokens, here into words.",
               "Everything that follows is computed for each token."],
        "zh": ["模型并不直接读文字：文本要先切分成词元（token），这里一个单词就是一个词元。",
               "之后的每一步，都是对每个词元计算。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {}},
      "focus": {"step": "tokens", "row": 0, "column": null},
      "code": {
        "cpp": ["const auto words = attn::text::split(\"Life is short, eat dessert first\");",
                "for (const auto& word : words) std::cout << word << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain(\"Life is short, eat dessert first\")",
                   "print(run[\"tokens\"].rows[0])"]
      },
      "shows": {"step": "tokens"},
      "question": {
        "text": {"en": "There is a comma in this sentence. How many tokens will there be?",
                 "zh": "这句话里还有一个逗号。一共会得到几个词元？"},
        "choices": ["5", "6", "7"],
        "answer": 1,
        "check": {"kind": "rows", "step": "tokens"},
        "why": {"en": "Six words. The comma would be a seventh, but it is left out.",
                "zh": "一共 6 个单词；逗号若也算就是 7 个，但它被略去了。"}
      }
    },
    {
      "idea": {
        "en": ["Each distinct token gets a number, its id: the token's place in the sorted vocabulary.",
               "Capital letters sort before small ones, so “Life” comes first."],
        "zh": ["每个不同的词元有一个编号，也就是它在排序后的词表中的位置。",
               "大写字母排在小写字母前面，所以 Life 排第一。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {}},
      "focus": {"step": "ids", "row": 2, "column": null},
      "code": {
        "cpp": ["const std::string sentence = \"Life is short, eat dessert first\";",
                "const auto vocabulary = attn::text::Vocabulary::of(sentence);",
                "const auto ids = vocabulary.encode(attn::text::split(sentence));",
                "std::cout << attn::tensor<std::int64_t>(ids) << \"\\n\";"],
        "python": ["words = \"Life is short, eat dessert first\".replace(\",\", \"\").split()",
                   "vocabulary = sorted(set(words))",
                   "print([vocabulary.index(word) for word in words])"]
      },
      "shows": {"step": "ids"},
      "question": {
        "text": {"en": "The ids go from 0 to 5. Which token gets 5?", "zh": "编号从 0 到 5，哪个词元的编号是 5？"},
        "choices": ["Life", "short", "first"],
        "answer": 1,
        "check": {"kind": "largest", "step": "ids"},
        "why": {"en": "An id is the place in the alphabet, not in the sentence, and “short” sorts last.",
                "zh": "编号看的是字母顺序，不是句中的顺序；short 排在最后。"}
      }
    },
    {
      "idea": {
        "en": ["The embedding is a table with one row of learned numbers for each id; a token's vector is its row.",
               "Nothing is trained here: the table has 50,000 rows of 3 random numbers, from seed 123."],
        "zh": ["词嵌入是一张表，每个编号对应一行可学习的数，这一行就是该词元的向量。",
               "这里没有训练：表中有 50000 行，每行 3 个随机数，随机种子为 123。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {}},
      "focus": {"step": "x", "row": 0, "column": 0},
      "code": {
        "cpp": ["const std::string sentence = \"Life is short, eat dessert first\";",
                "const auto ids = attn::text::Vocabulary::of(sentence).encode(attn::text::split(sentence));",
                "attn::manual_seed(123);",
                "const attn::nn::Embedding embedding(50'000, 3);",
                "std::cout << embedding(attn::tensor<std::int64_t>(ids)).detach() << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain(\"Life is short, eat dessert first\", dim=3, seed=123)",
                   "print(run[\"x\"].values.round(4))"]
      },
      "shows": {"step": "x"},
      "question": {
        "text": {"en": "What shape will x have?", "zh": "x 的形状是什么？"},
        "choices": ["[3, 6]", "[6, 3]", "[50000, 3]"],
        "answer": 1,
        "check": {"kind": "shape", "step": "x"},
        "why": {"en": "One row for each of the 6 tokens, 3 numbers in a row.",
                "zh": "6 个词元各占一行，每行 3 个数。"}
      }
    },
    {
      "idea": {
        "en": ["Each token's vector is multiplied by three matrices, W_q, W_k and W_v, and so gets three roles.",
               "Its query says what it looks for, its key what it is found by, its value what it passes on."],
        "zh": ["每个词元的向量分别乘以三个矩阵 W_q、W_k、W_v，于是有了三种角色。",
               "查询表示它要找什么，键表示它凭什么被找到，值表示它能提供什么内容。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {}},
      "focus": {"step": "q", "row": 2, "column": 0},
      "code": {
        "cpp": ["const auto x = attn::explain(\"Life is short, eat dessert first\").step(\"x\").values;",
                "attn::manual_seed(123);",
                "const auto w_q = attn::rand({3, 2}), w_k = attn::rand({3, 2}), w_v = attn::rand({3, 4});",
                "std::cout << x.matmul(w_q) << \"\\n\" << x.matmul(w_k) << \"\\n\" << x.matmul(w_v) << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain(\"Life is short, eat dessert first\")",
                   "w_q, w_k, w_v = (matrix.values for matrix in run.parameters)",
                   "x = run[\"x\"].values",
                   "for w in w_q, w_k, w_v:", "    print((x @ w).round(4))"]
      },
      "shows": {"step": "q"},
      "question": {
        "text": {"en": "W_v has the shape [3, 4]. What shape will v have?",
                 "zh": "W_v 的形状是 [3, 4]，那么 v 的形状是什么？"},
        "choices": ["[6, 2]", "[3, 4]", "[6, 4]"],
        "answer": 2,
        "check": {"kind": "shape", "step": "v"},
        "why": {"en": "[6, 3] times [3, 4] is [6, 4]. Queries and keys must have the same size, values need not.",
                "zh": "[6, 3] 乘 [3, 4] 得 [6, 4]。查询和键的维数必须相同，值的维数可以不同。"}
      }
    },
    {
      "idea": {
        "en": ["The score of a query and a key is their dot product: multiply number by number, then add.",
               "It is large when the two vectors point the same way."],
        "zh": ["查询和键的分数是两者的点积：对应的数相乘，再相加。", "两个向量方向越一致，分数越大。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {}},
      "focus": {"step": "scores", "row": 2, "column": 4},
      "code": {
        "cpp": ["const auto run = attn::explain(\"Life is short, eat dessert first\");",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values;",
                "std::cout << q.matmul(k.t()) << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain(\"Life is short, eat dessert first\")",
                   "q, k = run[\"q\"].values, run[\"k\"].values",
                   "print((q @ k.T).round(4))"]
      },
      "shows": {"step": "scores"},
      "question": {
        "text": {"en": "The query of “short” is (-0.0152, -0.7982). Which key will get its largest score?",
                 "zh": "short 的查询是 (-0.0152, -0.7982)，哪个键的分数最大？"},
        "choices": ["Life", "is", "short", "dessert"],
        "answer": 2,
        "check": {"kind": "largest", "step": "scores", "row": 2},
        "why": {"en": ["Its own key, (-0.2991, -0.7295): both second numbers are negative and large,",
                       "and minus times minus is plus."],
                "zh": "是它自己的键 (-0.2991, -0.7295)：两者的第二个数都是绝对值较大的负数，负负得正。"}
      }
    },
    {
      "idea": {
        "en": ["A dot product adds up d_k products, so scores spread out more when vectors are longer.",
               "Dividing by √d_k undoes this; here d_k is 2."],
        "zh": ["点积是 d_k 个乘积之和，维数越大，点积的方差越大。", "除以 √d_k 可以抵消这一影响；这里 d_k = 2。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {}},
      "focus": {"step": "scaled", "row": 1, "column": 1},
      "code": {
        "cpp": ["const auto run = attn::explain(\"Life is short, eat dessert first\");",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values;",
                "std::cout << attn::attention_scores(q, k) << \"\\n\";      // scaled by default"],
        "python": ["import attn", "",
                   "run = attn.explain(\"Life is short, eat dessert first\")",
                   "q, k = run[\"q\"].values, run[\"k\"].values",
                   "print((q @ k.T / 2**0.5).round(4))"]
      },
      "shows": {"step": "scaled"},
      "question": {
        "text": {"en": "Can dividing by √2 change which key has the largest score in a row?",
                 "zh": "除以 √2 之后，一行中分数最大的键会变吗？"},
        "choices": [{"en": "No", "zh": "不会"}, {"en": "Yes", "zh": "会"}],
        "answer": 0,
        "check": {"kind": "same_order", "step": "scaled", "as": "scores"},
        "why": {"en": "Every score is divided by the same positive number, so their order stays. Only the gaps shrink.",
                "zh": "所有分数都除以同一个正数，大小顺序不变，只是差距变小了。"}
      }
    },
    {
      "idea": {
        "en": ["Softmax makes weights of a row of scores: e to the power of each score, divided by their sum.",
               "Weights are positive, and each row adds up to 1."],
        "zh": ["softmax 把一行分数变成权重：先对每个分数取指数，再除以它们的和。", "权重都是正数，每行之和为 1。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {}},
      "focus": {"step": "weights", "row": 2, "column": 2},
      "code": {
        "cpp": ["const auto scaled = attn::explain(\"Life is short, eat dessert first\").step(\"scaled\").values;",
                "std::cout << attn::softmax(scaled, -1) << \"\\n\";"],
        "python": ["import attn", "import numpy as np", "",
                   "scaled = attn.explain(\"Life is short, eat dessert first\")[\"scaled\"].values",
                   "powers = np.exp(scaled)",
                   "print((powers / powers.sum(1, keepdims=True)).round(4))"]
      },
      "shows": {"step": "weights"},
      "question": {
        "text": {"en": "The query “is” scores 2.45 with its own key, 0.91 with the next. Which weight is that?",
                 "zh": "查询 is 对自己的键打分 2.45，第二大的分数是 0.91。它的权重大约是多少？"},
        "choices": ["0.45", "0.69", "1.00"],
        "answer": 1,
        "check": {"kind": "value", "step": "weights", "row": 1, "column": 1},
        "why": {"en": "e^2.45 is 11.6; with the five others the sum is 16.9. The others are small, but never 0.",
                "zh": "e^2.45 约为 11.6，加上其余五项，总和约为 16.9。其余权重很小，但不会是 0。"}
      }
    },
    {
      "idea": {
        "en": ["The context vector of a token is the sum of all values, each times its weight.",
               "So it is a vector that knows the rest of the sentence."],
        "zh": ["一个词元的上下文向量是所有值的加权和。", "于是这个向量里有了整句话的信息。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {}},
      "focus": {"step": "context", "row": 2, "column": 0},
      "code": {
        "cpp": ["const auto run = attn::explain(\"Life is short, eat dessert first\");",
                "const auto weights = run.step(\"weights\").values, v = run.step(\"v\").values;",
                "std::cout << weights.matmul(v) << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain(\"Life is short, eat dessert first\")",
                   "weights, v = run[\"weights\"].values, run[\"v\"].values",
                   "print((weights @ v).round(4))"]
      },
      "shows": {"step": "context"},
      "question": {
        "text": {"en": "Whose value has the largest share in the context of “first”?",
                 "zh": "在 first 的上下文向量中，哪个词元的值占比最大？"},
        "choices": ["is", "short", "first"],
        "answer": 1,
        "check": {"kind": "largest", "step": "weights", "row": 5},
        "why": {"en": "“short” has the weight 0.3102, “first” itself 0.2794. A token need not attend most to itself.",
                "zh": "short 的权重是 0.3102，first 自己是 0.2794。词元最关注的不一定是自己。"}
      }
    },
    {
      "idea": {
        "en": ["Here is one row worked out as on paper: products, sum, minus the maximum, exp, divided by the total.",
               "Subtracting the maximum keeps exp of a large score from overflowing."],
        "zh": ["这里像笔算一样展开一行：乘积、求和、减去最大值、取指数、除以总和。",
               "先减去最大值，是为了避免指数运算溢出。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {"query": 2}},
      "focus": {"step": "query_scores", "row": 2, "column": 0},
      "code": {
        "cpp": ["const auto run = attn::explain(\"Life is short, eat dessert first\");",
                "const auto scores = run.step(\"scaled\").values[2];",
                "const auto powers = attn::exp(scores - max(scores));",
                "std::cout << powers / powers.sum() << \"\\n\";"],
        "python": ["import attn", "import numpy as np", "",
                   "scores = attn.explain(\"Life is short, eat dessert first\")[\"scaled\"].values[2]",
                   "powers = np.exp(scores - scores.max())",
                   "print((powers / powers.sum()).round(4))"]
      },
      "shows": {"step": "weights", "row": 2},
      "question": {
        "text": {"en": "Add 1 to every score of a row. What happens to the weights?",
                 "zh": "如果一行里的每个分数都加 1，权重会怎样？"},
        "choices": [{"en": "They stay the same", "zh": "不变"}, {"en": "All of them grow", "zh": "都变大"},
                    {"en": "The largest one grows", "zh": "最大的那个变大"}],
        "answer": 0,
        "check": {"kind": "same_values", "step": "weights", "with": {"score_mod": "s + 1"}},
        "why": {"en": "e^(s + 1) is e times e^s, and the e is in the sum too. So the maximum may be subtracted.",
                "zh": "e^(s + 1) 等于 e 乘以 e^s，而总和里也多了同一个因子 e，约去即可。减去最大值也是同样的道理。"}
      }
    },
    {
      "idea": {
        "en": ["All these steps are one call: attention takes q, k and v and returns the context.",
               "The library computes them fused, block by block, and returns the weights only if you want them."],
        "zh": ["以上各步只需一次调用：attention 接收 q、k、v，返回上下文向量。",
               "库内部分块融合计算，需要时才返回权重。"]
      },
      "state": {"text": "Life is short, eat dessert first", "to": null, "options": {}},
      "focus": {"step": "context", "row": 0, "column": 0},
      "code": {
        "cpp": ["const auto run = attn::explain(\"Life is short, eat dessert first\");",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values, v = run.step(\"v\").values;",
                "std::cout << attn::attention(q, k, v).output << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain(\"Life is short, eat dessert first\")",
                   "q, k, v = (run[name].values for name in \"qkv\")",
                   "print(attn.attention(q, k, v).round(4))"]
      },
      "shows": {"step": "context"},
      "question": {
        "text": {"en": "q and k have the shape [6, 2], v has [6, 4]. What shape does attention return?",
                 "zh": "q 和 k 的形状是 [6, 2]，v 的形状是 [6, 4]。attention 返回的形状是什么？"},
        "choices": ["[6, 2]", "[6, 6]", "[6, 4]"],
        "answer": 2,
        "check": {"kind": "shape", "step": "context"},
        "why": {"en": "A row for each query, and each row is a mixture of values. The weights would be [6, 6].",
                "zh": "每个查询一行，每行都是值的加权和。[6, 6] 是权重的形状。"}
      }
    }
  ]
};
