// src/tensor/methods_products.cc: defines the methods of Tensor for products and reductions.
#include <attn/ops.h>

namespace attn {

Tensor Tensor::matmul(const Tensor& other) const { return attn::matmul(*this, other); }
Tensor Tensor::sum() const { return attn::sum(*this); }
Tensor Tensor::sum(Dims dims, bool keepdim) const { return attn::sum(*this, dims, keepdim); }
Tensor Tensor::mean() const { return attn::mean(*this); }
Tensor Tensor::mean(Dims dims, bool keepdim) const { return attn::mean(*this, dims, keepdim); }
Tensor Tensor::var(bool unbiased) const { return attn::var(*this, {}, unbiased); }
Tensor Tensor::softmax(int dim) const { return attn::softmax(*this, dim); }

}  // namespace attn
