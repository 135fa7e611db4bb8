// web/page/lessons/attention_scores.js: a lesson: functions that score a pair, and sentences padded to one length.
export const attentionScores = {
  "id": "attention_scores",
  "title": {"en": "Score functions and padding", "zh": "打分函数与填充"},
  "source": "examples/attention_scores.cc",
  "steps": [
    {
      "idea": {
        "en": ["A score function makes one number of a query and a key; everything after it stays the same.",
               "The plain dot product has no numbers to learn."],
        "zh": ["打分函数把一个查询和一个键变成一个数，之后的步骤都一样。", "最简单的是点积，它没有要学习的参数。"]
      },
      "state": {"text": "我叫张三", "to": null, "options": {"score": "dot"}},
      "focus": {"step": "scores", "row": 0, "column": 0},
      "code": {
        "cpp": ["const auto run = attn::explain(\"我叫张三\");",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values;",
                "std::cout << attn::attention_scores(q, k, {.score = attn::Score::dot()}) << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain(\"我叫张三\")",
                   "q, k = run[\"q\"].values, run[\"k\"].values",
                   "print(attn.attention_scores(q, k, \"dot\").round(4))"]
      },
      "shows": {"step": "scores"},
      "question": {
        "text": {"en": "The query of 三 is (0.0327, -0.2112). Which key gets its largest score?",
                 "zh": "“三”的查询是 (0.0327, -0.2112)，哪个键的分数最大？"},
        "choices": ["我", "叫", "张", "三"],
        "answer": 0,
        "check": {"kind": "largest", "step": "scores", "row": 3},
        "why": {"en": ["我 has the key (-0.4788, -0.5835):",
                       "its second number is negative too, and the larger of the two."],
                "zh": "“我”的键是 (-0.4788, -0.5835)：第二个数同样为负，而且绝对值更大。"}
      }
    },
    {
      "idea": {
        "en": ["The general (bilinear) score puts a learned matrix W between the query and the key.",
               "W says which number of the query should meet which number of the key."],
        "zh": ["双线性（general）打分在查询和键之间加了一个可学习的矩阵 W。",
               "W 决定查询的哪个分量与键的哪个分量相乘。"]
      },
      "state": {"text": "我叫张三", "to": null, "options": {"score": "general"}},
      "focus": {"step": "scores", "row": 0, "column": 0},
      "code": {
        "cpp": ["const auto run = attn::explain(\"我叫张三\", {.score = attn::Score::Kind::general});",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values;",
                "const auto W = run.parameters.back().values;",
                "std::cout << attn::attention_scores(q, k, {.score = attn::Score::general(W)}) << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain(\"我叫张三\", score=\"general\")",
                   "q, k, W = run[\"q\"].values, run[\"k\"].values, run.parameters[-1].values",
                   "print((q @ W @ k.T).round(4))",
                   "print(attn.attention_scores(q, k, attn.Score.general(W)).round(4))"]
      },
      "shows": {"step": "scores"},
      "question": {
        "text": {"en": "Queries and keys have 2 numbers. What shape does W have?",
                 "zh": "查询和键都是 2 维，W 的形状是什么？"},
        "choices": ["[2]", "[2, 2]", "[4, 4]"],
        "answer": 1,
        "check": {"kind": "shape", "step": "score_w"},
        "why": {"en": ["One number for each pair of a query's and a key's number.",
                       "The identity matrix gives the dot product."],
                "zh": "查询的每个分量与键的每个分量各配一个数。若 W 是单位矩阵，就退化为点积。"}
      }
    },
    {
      "idea": {
        "en": ["The additive score adds the transformed query and key, takes tanh, and sums with learned weights w.",
               "It is the oldest of the three, and works when queries and keys differ in size."],
        "zh": ["加性打分先把变换后的查询和键相加，取 tanh，再用可学习的向量 w 加权求和。",
               "它在三者中出现得最早，查询和键的维数不同时也能用。"]
      },
      "state": {"text": "我叫张三", "to": null, "options": {"score": "additive"}},
      "focus": {"step": "scores", "row": 0, "column": 1},
      "code": {
        "cpp": ["const auto run = attn::explain(\"我叫张三\", {.score = attn::Score::Kind::additive});",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values;",
                "const auto S_q = run.parameters[3].values, S_k = run.parameters[4].values;",
                "const auto score = attn::Score::additive(S_q, S_k, run.parameters[5].values);",
                "std::cout << attn::attention_scores(q, k, {.score = score}) << \"\\n\";"],
        "python": ["import attn", "import numpy as np", "",
                   "run = attn.explain(\"我叫张三\", score=\"additive\")",
                   "q, k = run[\"q\"].values, run[\"k\"].values",
                   "S_q, S_k, w = (matrix.values for matrix in run.parameters[3:])",
                   "sums = (q @ S_q.T)[:, None] + (k @ S_k.T)[None]      # one vector for each pair",
                   "print((np.tanh(sums) @ w[0]).round(4))"]
      },
      "shows": {"step": "scores"},
      "question": {
        "text": {"en": "By the dot product, 我 attends most to itself. Which key wins by this additive score?",
                 "zh": "用点积时，“我”最关注的是自己。换成这里的加性打分，权重最大的键是哪个？"},
        "choices": ["我", "叫", "张", "三"],
        "answer": 1,
        "check": {"kind": "largest", "step": "weights", "row": 0},
        "why": {"en": ["叫, with -0.8373, the least negative score.",
                       "Another function gives other weights; training finds out what is useful."],
                "zh": "是“叫”，它的分数 -0.8373 最大。换一个打分函数，权重就不同；哪种有用由训练决定。"}
      }
    },
    {
      "idea": {
        "en": ["The query need not be a word: one learned vector u can ask, the same for every text.",
               "Then a sentence gets one row of weights and one context vector, which sums it up."],
        "zh": ["查询不一定来自某个词：也可以由一个可学习的向量 u 来提问，对所有文本都一样。",
               "这样整句话只有一行权重和一个上下文向量，它就是这句话的编码。"]
      },
      "state": {"text": "我叫张三", "to": null, "options": {"score": "additive", "learned_query": true}},
      "focus": {"step": "weights", "row": 0, "column": 1},
      "code": {
        "cpp": ["const auto kind = attn::Score::Kind::additive;",
                "const auto run = attn::explain(\"我叫张三\", {.score = kind, .learned_query = true});",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values, v = run.step(\"v\").values;",
                "const auto S_q = run.parameters[3].values, S_k = run.parameters[4].values;",
                "const auto score = attn::Score::additive(S_q, S_k, run.parameters[5].values);",
                "std::cout << attn::attention(q, k, v, {.score = score}).output << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain(\"我叫张三\", score=\"additive\", learned_query=True)",
                   "q, k, v = (run[name].values for name in \"qkv\")",
                   "score = attn.Score.additive(*(matrix.values for matrix in run.parameters[3:]))",
                   "print(attn.attention(q, k, v, score=score).round(4))"]
      },
      "shows": {"step": "context"},
      "question": {
        "text": {"en": "One vector asks, four words answer. What is the shape of the weights?",
                 "zh": "一个向量提问，四个词回答。权重的形状是什么？"},
        "choices": ["[4, 4]", "[1, 4]", "[4, 1]"],
        "answer": 1,
        "check": {"kind": "shape", "step": "weights"},
        "why": {"en": "A row for each query, and there is only one. This is also called attention pooling.",
                "zh": "每个查询一行，而这里只有一个查询。这种用法也叫注意力汇聚。"}
      }
    },
    {
      "idea": {
        "en": ["Sentences of a batch must have one length, so shorter ones are filled up with the token PAD.",
               "PAD has an id, a vector, a query and a key like any other token."],
        "zh": ["同一批句子必须一样长，短句用填充词元 PAD 补齐。", "PAD 和其他词元一样，也有编号、向量、查询和键。"]
      },
      "state": {"text": ["我叫张三", "他是谁", "李四"], "to": null, "options": {}},
      "focus": {"step": "ids", "row": 3, "column": null, "batch": 1},
      "code": {
        "cpp": ["const auto run = attn::explain_batch({\"我叫张三\", \"他是谁\", \"李四\"});",
                "std::cout << run.step(\"ids\").values << \"\\n\";"],
        "python": ["texts = [\"我叫张三\", \"他是谁\", \"李四\"]",
                   "vocabulary = sorted(set(\"\".join(texts))) + [\"PAD\"]",
                   "for text in texts:",
                   "    print([vocabulary.index(word) for word in [*text, \"PAD\", \"PAD\"][:4]])"]
      },
      "shows": {"step": "ids"},
      "question": {
        "text": {"en": "Three sentences, the longest of 4 tokens, 3 numbers each. What shape does x have?",
                 "zh": "三句话，最长的有 4 个词元，每个词元 3 维。x 的形状是什么？"},
        "choices": ["[9, 3]", "[3, 4, 3]", "[4, 3, 3]"],
        "answer": 1,
        "check": {"kind": "shape", "step": "x"},
        "why": {"en": "[batch, tokens, dim]. Three of the twelve tokens are PAD.",
                "zh": "依次是批次、词元和维数。十二个词元中有三个是 PAD。"}
      }
    },
    {
      "idea": {
        "en": ["A score with PAD is computed like any other, and if it stayed, PAD would take a share of the weight.",
               "So the columns of PAD are masked: their scores count as -∞."],
        "zh": ["与 PAD 的分数照样会算出来；如果留着，PAD 就会分走一部分权重。",
               "所以要把 PAD 所在的列遮住，分数记为 −∞。"]
      },
      "state": {"text": ["我叫张三", "他是谁", "李四"], "to": null, "options": {}},
      "focus": {"step": "mask", "row": 0, "column": 3, "batch": 1},
      "code": {
        "cpp": ["const auto run = attn::explain_batch({\"我叫张三\", \"他是谁\", \"李四\"});",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values;",
                "std::cout << attn::attention_scores(q, k) << \"\\n\";      // PAD included"],
        "python": ["import attn", "",
                   "run = attn.explain([\"我叫张三\", \"他是谁\", \"李四\"])",
                   "q, k = run[\"q\"].values, run[\"k\"].values",
                   "print(attn.attention_scores(q, k).round(4))      # PAD included"]
      },
      "shows": {"step": "scaled"},
      "question": {
        "text": {"en": "How many of the four columns are masked for 李?", "zh": "对“李”来说，四列中有几列被遮住？"},
        "choices": ["0", "1", "2"],
        "answer": 2,
        "check": {"kind": "masked", "step": "mask", "row": 0, "batch": 2},
        "why": {"en": "李四 has two tokens, so the other two are PAD.", "zh": "“李四”只有两个词元，另外两个是 PAD。"}
      }
    },
    {
      "idea": {
        "en": ["After the softmax the masked columns have the weight 0.",
               "Lengths say it in the shortest way: 4, 3 and 2 keys."],
        "zh": ["softmax 之后，被遮住的列权重为 0。",
               "用长度表示掩码最简洁：三句话分别有 4、3、2 个键。"]
      },
      "state": {"text": ["我叫张三", "他是谁", "李四"], "to": null, "options": {}},
      "focus": {"step": "weights", "row": 0, "column": 1, "batch": 1},
      "code": {
        "cpp": ["const auto run = attn::explain_batch({\"我叫张三\", \"他是谁\", \"李四\"});",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values, v = run.step(\"v\").values;",
                "const auto lengths = attn::tensor<std::int64_t>({4, 3, 2});",
                "std::cout << attn::attention(q, k, v, {.query_lengths = lengths, .key_lengths = lengths,",
                "                                       .weights = attn::Weights::full}).weights << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain([\"我叫张三\", \"他是谁\", \"李四\"])",
                   "q, k, v = (run[name].values for name in \"qkv\")",
                   "output, weights = attn.attention(q, k, v, query_lengths=[4, 3, 2], key_lengths=[4, 3, 2],",
                   "                                 weights=\"full\")",
                   "print(weights.round(4))"]
      },
      "shows": {"step": "weights"},
      "question": {
        "text": {"en": "What do the weights of 他 over the three words add up to?",
                 "zh": "“他”对三个词的权重之和是多少？"},
        "choices": ["0.75", "0.90", "1.00"],
        "answer": 2,
        "check": {"kind": "sum", "step": "weights", "row": 0, "batch": 1},
        "why": {"en": "0.3181 + 0.4650 + 0.2169: the row is whole without PAD.",
                "zh": "0.3181 + 0.4650 + 0.2169 = 1：没有 PAD 也是完整的一行。"}
      }
    },
    {
      "idea": {
        "en": ["Does padding change what a sentence gets?",
               "Here each sentence is computed alone too, and the results are compared bit by bit."],
        "zh": ["填充会不会改变一句话的结果？", "这里把每句话再单独计算一遍，逐个二进制位比较。"]
      },
      "state": {"text": ["我叫张三", "他是谁", "李四"], "to": null, "options": {}},
      "focus": {"step": "context", "row": 0, "column": 0, "batch": 2},
      "code": {
        "cpp": ["const auto run = attn::explain_batch({\"我叫张三\", \"他是谁\", \"李四\"});",
                "const auto alone = [&](const char* name) { return run.step(name).values[2].slice(0, 0, 2); };",
                "std::cout << attn::attention(alone(\"q\"), alone(\"k\"), alone(\"v\")).output[0] << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain([\"我叫张三\", \"他是谁\", \"李四\"])",
                   "q, k, v = (run[name].values[2, :2] for name in \"qkv\")      # 李四 without PAD",
                   "print(attn.attention(q, k, v)[0].round(4))"]
      },
      "shows": {"step": "context", "batch": 2, "row": 0},
      "question": {
        "text": {"en": "Does 李四 get the same bits alone as in the batch?",
                 "zh": "“李四”单独计算和放在批次里计算，结果逐位相同吗？"},
        "choices": [{"en": "Yes", "zh": "相同"}, {"en": "No", "zh": "不同"}],
        "answer": 0,
        "check": {"kind": "holds", "step": "alone"},
        "why": {"en": "A masked key takes no part in any sum, so nothing is rounded differently.",
                "zh": "被遮住的键不参与任何求和，舍入也就完全一样。"}
      }
    },
    {
      "idea": {
        "en": ["PAD also has rows of its own, as a query; nobody needs their result.",
               "Such a row sees no key, so there is nothing to mix."],
        "zh": ["PAD 作为查询也有自己的行，但这些结果没有用处。", "这样的行看不到任何键，也就没有值可以加权。"]
      },
      "state": {"text": ["我叫张三", "他是谁", "李四"], "to": null, "options": {}},
      "focus": {"step": "context", "row": 3, "column": 0, "batch": 2},
      "code": {
        "cpp": ["const auto run = attn::explain_batch({\"我叫张三\", \"他是谁\", \"李四\"});",
                "const auto q = run.step(\"q\").values, k = run.step(\"k\").values, v = run.step(\"v\").values;",
                "const auto lengths = attn::tensor<std::int64_t>({4, 3, 2});",
                "std::cout << attn::attention(q, k, v, {.query_lengths = lengths,",
                "                                       .key_lengths = lengths}).output << \"\\n\";"],
        "python": ["import attn", "",
                   "run = attn.explain([\"我叫张三\", \"他是谁\", \"李四\"])",
                   "q, k, v = (run[name].values for name in \"qkv\")",
                   "print(attn.attention(q, k, v, query_lengths=[4, 3, 2], key_lengths=[4, 3, 2]).round(4))"]
      },
      "shows": {"step": "context"},
      "question": {
        "text": {"en": "Which number stands in the last row of 李四's context?",
                 "zh": "“李四”的上下文向量中，最后一行是什么数？"},
        "choices": ["0.00", "0.25", "1.00"],
        "answer": 0,
        "check": {"kind": "value", "step": "context", "batch": 2, "row": 3, "column": 0},
        "why": {"en": "A plain softmax over nothing would be 0 / 0, not a number; the library defines it as 0.",
                "zh": "对空的一行直接做 softmax 会得到 0 / 0，没有意义；本库规定结果为 0。"}
      }
    }
  ]
};
