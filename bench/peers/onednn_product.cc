// bench/peers/onednn_product.cc: oneDNN's matrix product behind four C functions, for peers.py.
#include <oneapi/dnnl/dnnl.hpp>

#include <omp.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

namespace {

using dnnl::memory;

/// Memory on its own pages, filled with small numbers.
memory filled(const memory::desc& desc, const dnnl::engine& engine, memory::data_type type) {
  memory result(desc, engine);
  const std::size_t bytes = desc.get_size();
  if (type == memory::data_type::f32) {
    auto* x = static_cast<float*>(result.get_data_handle());
    for (std::size_t i = 0; i < bytes / 4; ++i) x[i] = static_cast<float>(i * 7919 % 1000) / 1000.0f - 0.5f;
  } else {
    auto* x = static_cast<std::uint16_t*>(result.get_data_handle());  // bf16: numbers between 1/4 and 1
    for (std::size_t i = 0; i < bytes / 2; ++i) x[i] = static_cast<std::uint16_t>(0x3e80 + i * 7919 % 256);
  }
  return result;
}

struct Product {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul primitive;
  memory a, b, y;

  Product(bool bf16, std::string layout, bool packed, int m, int n, int k) {
    using tag = memory::format_tag;
    const auto type = bf16 ? memory::data_type::bf16 : memory::data_type::f32;
    const memory::desc a_desc({m, k}, type, layout == "tn" ? tag::ba : tag::ab),
        b_plain({k, n}, type, layout == "nt" ? tag::ba : tag::ab);
    const memory::desc b_any({k, n}, type, tag::any), y_desc({m, n}, type, tag::ab);
    const dnnl::matmul::primitive_desc described(dnnl::matmul::desc(a_desc, packed ? b_any : b_plain, y_desc), engine);
    primitive = dnnl::matmul(described);
    a = filled(a_desc, engine, type);
    b = filled(b_plain, engine, type);
    if (packed) {
      memory laid_out(described.weights_desc(), engine);
      dnnl::reorder(b, laid_out).execute(stream, b, laid_out);
      stream.wait();
      b = laid_out;
    }
    y = memory(y_desc, engine);
  }
};

}  // namespace

extern "C" {

const char* onednn_version() {
  static const std::string text = [] {
    const dnnl_version_t* v = dnnl_version();
    return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
  }();
  return text.c_str();
}

/// Null when oneDNN has no such product.
void* onednn_make(int threads, int bf16, const char* layout, int packed, int m, int n, int k) {
  omp_set_num_threads(threads);
  try {
    return new Product(bf16 != 0, layout, packed != 0, m, n, k);
  } catch (const dnnl::error&) { return nullptr; }
}

void onednn_call(void* product) {
  Product& p = *static_cast<Product*>(product);
  p.primitive.execute(p.stream, {{DNNL_ARG_SRC, p.a}, {DNNL_ARG_WEIGHTS, p.b}, {DNNL_ARG_DST, p.y}});
  p.stream.wait();
}

void onednn_free(void* product) { delete static_cast<Product*>(product); }
}
