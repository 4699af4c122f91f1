#include "worker/dense/prepared_product.h"

#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <tuple>

#include "common/log.h"
#include "common/math/bfloat16.h"
#include "dnnl.h"
#include "worker/dense/parallel.h"

namespace tessera::worker {
namespace {

// Ends the process if oneDNN failed: sizes are right, so this is out of memory or a bug.
void Must(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return;
  spdlog::critical("oneDNN failed to {}, with status {}", what, static_cast<int>(status));
  std::abort();
}

dnnl_engine_t Engine() {
  static const dnnl_engine_t engine = [] {
    dnnl_engine_t made;
    Must(dnnl_engine_create(&made, dnnl_cpu, 0), "make an engine for products");
    return made;
  }();
  return engine;
}

// A product that oneDNN has prepared for one shape, with its operands. Used by one thread.
class Product {
 public:
  // Type of the operands; m, n, k; strides of A, of B; row stride of C; whether C and a bias are
  // added.
  using Key = std::tuple<dnnl_data_type_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                         int64_t, int64_t, bool, bool>;

  explicit Product(const Key& key) {
    const auto& [numbers, m, n, k, a_row, a_column, b_row, b_column, c_row, add, has_bias] = key;
    const dnnl_memory_desc_t a = Describe(m, k, numbers, a_row, a_column);
    const dnnl_memory_desc_t b = Describe(k, n, numbers, b_row, b_column);
    const dnnl_memory_desc_t c = Describe(m, n, dnnl_f32, c_row, 1);
    const dnnl_memory_desc_t bias = Describe(1, n, dnnl_f32, n, 1);
    dnnl_matmul_desc_t operation;
    Must(dnnl_matmul_desc_init(&operation, &a, &b, has_bias ? &bias : nullptr, &c),
         "describe a product");
    dnnl_primitive_attr_t attributes;
    dnnl_post_ops_t after;
    Must(dnnl_primitive_attr_create(&attributes), "describe a product");
    Must(dnnl_post_ops_create(&after), "describe a product");
    if (add) Must(dnnl_post_ops_append_sum(after, 1), "describe a product");
    Must(dnnl_primitive_attr_set_post_ops(attributes, after), "describe a product");
    dnnl_primitive_desc_t description;
    Must(dnnl_primitive_desc_create(&description, &operation, attributes, Engine(), nullptr),
         "prepare a product");
    Must(dnnl_primitive_create(&primitive_, description), "prepare a product");
    dnnl_primitive_desc_destroy(description);
    dnnl_post_ops_destroy(after);
    dnnl_primitive_attr_destroy(attributes);
    Must(dnnl_stream_create(&stream_, Engine(), dnnl_stream_default_flags), "make a stream");
    Must(dnnl_memory_create(&a_, &a, Engine(), DNNL_MEMORY_NONE), "describe an operand");
    Must(dnnl_memory_create(&b_, &b, Engine(), DNNL_MEMORY_NONE), "describe an operand");
    Must(dnnl_memory_create(&c_, &c, Engine(), DNNL_MEMORY_NONE), "describe a result");
    if (has_bias) {
      Must(dnnl_memory_create(&bias_, &bias, Engine(), DNNL_MEMORY_NONE), "describe a bias");
    }
  }
  ~Product() {
    for (const dnnl_memory_t memory : {a_, b_, c_, bias_}) dnnl_memory_destroy(memory);
    dnnl_stream_destroy(stream_);
    dnnl_primitive_destroy(primitive_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void Run(const void* a, const void* b, const float* bias, float* c) {
    Must(dnnl_memory_set_data_handle(a_, const_cast<void*>(a)), "take an operand");
    Must(dnnl_memory_set_data_handle(b_, const_cast<void*>(b)), "take an operand");
    Must(dnnl_memory_set_data_handle(c_, c), "take a result");
    if (bias_ != nullptr) {
      Must(dnnl_memory_set_data_handle(bias_, const_cast<float*>(bias)), "take a bias");
    }
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}, {DNNL_ARG_BIAS, bias_}};
    const int count = bias_ == nullptr ? 3 : 4;
    Must(dnnl_primitive_execute(primitive_, stream_, count, arguments), "multiply matrices");
    Must(dnnl_stream_wait(stream_), "multiply matrices");
  }

 private:
  static dnnl_memory_desc_t Describe(int64_t rows, int64_t columns, dnnl_data_type_t type,
                                     int64_t row_stride, int64_t column_stride) {
    const dnnl_dims_t sizes = {rows, columns};
    const dnnl_dims_t strides = {row_stride, column_stride};
    dnnl_memory_desc_t description;
    Must(dnnl_memory_desc_init_by_strides(&description, 2, sizes, type, strides),
         "describe an operand");
    return description;
  }

  dnnl_primitive_t primitive_ = nullptr;
  dnnl_stream_t stream_ = nullptr;
  dnnl_memory_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  dnnl_memory_t bias_ = nullptr;  // null: none
};

template <dnnl_data_type_t kNumbers, typename Number>
void MultiplyPrepared(int64_t m, int64_t n, int64_t k, Operand<Number> a, Operand<Number> b,
                      float* c, int64_t c_stride, Addends addends) {
  // A graph has few shapes. When there are too many, all are forgotten, which drops those of batch
  // sizes that came once.
  constexpr size_t kMostProducts = 512;
  thread_local std::map<Product::Key, std::unique_ptr<Product>> products;
  const Product::Key key(kNumbers, m, n, k, a.row_stride, a.column_stride, b.row_stride,
                         b.column_stride, c_stride, addends.c, addends.bias != nullptr);
  auto found = products.find(key);
  if (found == products.end()) {
    if (products.size() >= kMostProducts) products.clear();
    found = products.emplace(key, std::make_unique<Product>(key)).first;
  }
  found->second->Run(a.data, b.data, addends.bias, c);
}

}  // namespace

bool HasBfloat16Products() {
  const int isa = static_cast<int>(dnnl_get_effective_cpu_isa());
  return (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

void RoundToBfloat16(TaskPool* pool, absl::Span<const float> from, uint16_t* to) {
  const float* const in = from.data();
  ForElements(pool, from.size(), [in, to](size_t begin, size_t end) {
    math::RoundToBfloat16(in + begin, end - begin, to + begin);
  });
}

void Multiply(int64_t m, int64_t n, int64_t k, Operand<float> a, Operand<float> b, float* c,
              int64_t c_stride, Addends addends) {
  MultiplyPrepared<dnnl_f32>(m, n, k, a, b, c, c_stride, addends);
}

void Multiply(int64_t m, int64_t n, int64_t k, Operand<uint16_t> a, Operand<uint16_t> b, float* c,
              int64_t c_stride, Addends addends) {
  MultiplyPrepared<dnnl_bf16>(m, n, k, a, b, c, c_stride, addends);
}

}  // namespace tessera::worker
