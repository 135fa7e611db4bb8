// src/explain/words_zh.cc: lists the phrases in Chinese, in the order of Phrase, each ended by a zero.
#include "explain/words.h"

#include <algorithm>
#include <iterator>

namespace attn::explain_detail {

const char* words_zh() {
  static constexpr char words[] =
      /* tokens */
      "词元\0"
      /* tokens_to */
      "词元（提供键和值的文本）\0"
      /* ids */
      "编号\0"
      /* ids_to */
      "编号（提供键和值的文本）\0"
      /* embedding */
      "词嵌入 x\0"
      /* embedding_to */
      "词嵌入 y\0"
      /* positions */
      "位置 p\0"
      /* with_positions */
      "x + p\0"
      /* with_positions_to */
      "y + p\0"
      /* query */
      "查询 q\0"
      /* key */
      "键 k\0"
      /* value */
      "值 v\0"
      /* query_rotated */
      "旋转后的 q\0"
      /* key_rotated */
      "旋转后的 k\0"
      /* scores */
      "打分\0"
      /* scaled */
      "缩放\0"
      /* mask */
      "掩码\0"
      /* weights */
      "注意力权重\0"
      /* context */
      "上下文向量\0"
      /* joined */
      "拼接\0"
      /* output */
      "输出\0"
      /* learned_query */
      "查询向量 u\0"
      /* alone */
      "单独计算\0"
      /* row_scores */
      "逐步展开一个查询\0"
      /* row_values */
      "加权求和\0"
      /* d_output */
      "dY\0"
      /* d_context */
      "dO\0"
      /* d_value */
      "dV\0"
      /* d_dropped */
      "Dropout 后 dP\0"
      /* d_weights */
      "dP\0"
      /* d_scores */
      "dS\0"
      /* d_untempered */
      "温度前 dS\0"
      /* d_unmodified */
      "自定义分数前 dS\0"
      /* d_uncapped */
      "软截断前 dS\0"
      /* d_query */
      "dQ\0"
      /* d_key */
      "dK\0"
      /* capped */
      "分数软截断（softcap）\0"
      /* bias */
      "偏置\0"
      /* biased */
      "加偏置\0"
      /* modified */
      "自定义分数（score_mod）\0"
      /* tempered */
      "温度\0"
      /* sink */
      "注意力汇（sink）\0"
      /* dropped */
      "Dropout 之后\0"
      /* returned */
      "返回的权重\0"
      /* packed */
      "打包序列（packed）\0"
      /* cached */
      "缓存\0"
      /* key_int8 */
      "8 位的 k\0"
      /* value_int8 */
      "8 位的 v\0"
      /* context_int8 */
      "上下文向量\0"
      /* note_tokens */
      "词元（token）：把文本切成的小块\0"
      /* note_tokens_batch */
      "词元（token）：把文本切成的小块；短句用 PAD 补齐\0"
      /* note_tokens_to */
      "交叉注意力：提供键和值的文本\0"
      /* note_ids */
      "编号：词元在排序后词表中的位置\0"
      /* note_ids_pad */
      "编号：词元在排序后词表中的位置；PAD 排在最后\0"
      /* note_embedding */
      "词嵌入：代表编号的向量\0"
      /* note_positions */
      "位置：词元在句中的位置，用正弦和余弦表示\0"
      /* note_with_positions */
      "加上位置的词嵌入\0"
      /* note_query */
      "查询：词元要找什么\0"
      /* note_key */
      "键：词元凭什么被找到\0"
      /* note_value */
      "值：词元提供的内容\0"
      /* note_rotated */
      "每对数按随位置增大的角度旋转\0"
      /* note_scores_self */
      "自注意力：{}，同一文本的查询（行）与键（列）有多匹配\0"
      /* note_scores_cross */
      "交叉注意力：{}，一个文本的查询（行）与另一文本的键（列）有多匹配\0"
      /* note_scores_learned */
      "用一个可学习的查询做注意力：{}，它（行）与每个键（列）有多匹配\0"
      /* note_scaled */
      "缩放点积注意力：维数越大，点积的方差越大，所以除以 √d_k\0"
      /* note_mask */
      "掩码：被遮住的位置记为 −∞，softmax 后权重为 0\0"
      /* note_mask_causal */
      "因果注意力：词元看不到后面的词元；被遮住的位置记为 −∞，softmax 后权重为 0\0"
      /* note_weights */
      "注意力权重：每行之和为 1\0"
      /* note_weights_empty */
      "注意力权重：每行之和为 1；看不到任何键的行没有权重\0"
      /* note_context */
      "上下文向量：按权重混合的值\0"
      /* note_context_pad */
      "上下文向量：按权重混合的值；PAD 行为 0\0"
      /* note_joined */
      "多头注意力：各头的上下文向量首尾拼接\0"
      /* note_output */
      "输出投影：W_O 把各头的结果混合起来\0"
      /* note_learned_query */
      "一个可学习的查询向量，对所有文本都相同\0"
      /* note_parameters */
      "模型要学习的矩阵\0"
      /* note_alone */
      "每句不加 PAD 单独计算：每一位都相同吗？\0"
      /* note_row_scores */
      "手算一个查询：逐项乘积、求和、减去最大值、取指数、除以总和\0"
      /* note_row_values */
      "手算一个查询：每个值乘以权重，再求和\0"
      /* note_d_output */
      "输出的梯度，反向传播从这里开始：每个数变动时损失如何变化\0"
      /* note_d_context */
      "上下文的梯度，反向传播从这里开始：每个数变动时损失如何变化\0"
      /* note_d_context_output */
      "经过 W_O 反传得到上下文的梯度：每个数变动时损失如何变化\0"
      /* note_d_value */
      "值的梯度：各查询的梯度按权重相加\0"
      /* note_d_dropped */
      "Dropout 之后的权重的梯度：每个权重变动时损失如何变化\0"
      /* note_d_weights */
      "权重的梯度：每个权重变动时损失如何变化\0"
      /* note_d_scores */
      "softmax 的梯度：同一行里有增必有减，所以每行之和为 0\0"
      /* note_d_untempered */
      "温度的梯度：像打分那样除以温度\0"
      /* note_d_unmodified */
      "自定义分数的梯度：乘以表达式在该打分处的导数\0"
      /* note_d_uncapped */
      "软截断的梯度：打分越接近上限，梯度越小\0"
      /* note_d_query */
      "查询的梯度：来自它关注的键\0"
      /* note_d_key */
      "键的梯度：来自关注它的查询\0"
      /* note_capped */
      "分数软截断（softcap）：过大的打分被压低\0"
      /* note_alibi */
      "ALiBi：离得越远，减去越多\0"
      /* note_alibi_ahead */
      "ALiBi：往前看，离得越远，减去越多；没有因果掩码时，往后看，离得越远，加得越多\0"
      /* note_alibi_symmetric */
      "双向 ALiBi：离得越远，减去越多\0"
      /* note_relative */
      "相对位置：每个距离一个数\0"
      /* note_biased */
      "打分加上偏置\0"
      /* note_modified */
      "由你的表达式（score_mod）得到的打分\0"
      /* note_tempered */
      "温度：小于 1 权重更尖锐，大于 1 更平均\0"
      /* note_weights_sink */
      "注意力权重：每行与注意力汇所占之和为 1\0"
      /* note_sink */
      "注意力汇（sink）：占去权重，没有值\0"
      /* note_dropped */
      "Dropout：一些权重为 0，其余放大\0"
      /* note_column_sums */
      "每个键从所有查询得到的权重\0"
      /* note_head_average */
      "各头权重的平均\0"
      /* note_asked */
      "调用所返回的权重\0"
      /* note_packed */
      "句子首尾相接，不加 PAD：上下文的每一位都相同吗？\0"
      /* note_cached */
      "键和值取自分页缓存：上下文的每一位都相同吗？\0"
      /* note_int8 */
      "8 位量化后再还原的数（每行一个缩放系数）\0"
      /* note_context_int8 */
      "由 8 位缓存得到的上下文向量\0"
      /* source_automatic */
      "按空格切词，中文和日文按字切分\0"
      /* source_words */
      "按空格切词\0"
      /* source_characters */
      "按字切分\0"
      /* source_cut_words */
      "按词切分\0"
      /* source_embedding */
      "Embedding({}, {})，种子 {}\0"
      /* source_random */
      "{}，种子 {}\0"
      /* source_drawn */
      "{}：rand，种子 {}\0"
      /* source_own */
      "你给的 {}\0"
      /* source_head */
      "第 {} 层，第 {} 头\0"
      /* source_key_head */
      "第 {} 层，第 {} 头（键）\0"
      /* source_sines */
      "位置 / 10000^(2i / {}) 的 sin 与 cos\0"
      /* source_left_out */
      "略去标点：{}\0"
      /* source_and */
      "；\0"
      /* dot */
      "点积打分\0"
      /* general */
      "双线性打分（general）\0"
      /* additive */
      "加性打分\0"
      /* learned_row */
      "查询\0"
      /* head */
      "第 {} 头\0"
      /* sentence */
      "第 {} 句：{}\0"
      /* legend */
      "被遮住：\0"
      /* legend_blank */
      "空白：\0"
      /* legend_causal */
      "在查询之后（因果）\0"
      /* legend_window */
      "在窗口之外\0"
      /* legend_mask */
      "被掩码排除\0"
      /* legend_padding */
      "填充\0"
      /* legend_score */
      "打分为 -inf\0"
      /* legend_not_returned */
      "没有要求返回\0"
      /* scale */
      "图例：░ 从 {}  ▒ 从 {}  ▓ 从 {}  █ 从 {}\0"
      /* scale_share */
      "均匀分布时为 {:.4f}\0"
      /* rows_left_out */
      "行：共 {1}，显示 {0}\0"
      /* keys_left_out_strongest */
      "键：共 {1}，显示权重最大的 {0} 个；未显示的占这些行权重的 {2:.1f} %\0"
      /* keys_left_out_diagonal */
      "键：共 {1}，显示对角线附近的 {0}；未显示的占这些行权重的 {2:.1f} %\0"
      /* columns_left_out */
      "另有 {} 列\0"
      /* maximum */
      "最大值 {}\0"
      /* total */
      "总和 {}\0"
      /* row_of */
      "查询 {}“{}”\0"
      /* row_number */
      "查询 {}\0"
      /* same_bits */
      "单独计算每一位都相同\0"
      /* other_bits */
      "单独计算结果不同\0"
      /* still_same_bits */
      "每一位都相同\0"
      /* changed_bits */
      "结果不同\0"
      /* sum_row */
      "求和\0"
      /* loss */ "损失 L = ½ Σ {}² = {}\0";
  static_assert(std::count(words, std::end(words) - 1, 0) == static_cast<int>(Phrase::count_));
  return words;
}

}  // namespace attn::explain_detail
