#include "common/job/optimizer.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/job/optimizer_formula.h"

namespace tessera {
namespace {

// Checks numbers one by one and keeps the first that is wrong.
class Numbers {
 public:
  Numbers& Positive(const char* field, float x) { return Ask(field, x, x > 0, "more than 0"); }
  // A factor of other numbers, which must stay finite.
  Numbers& Factor(const char* field, float x) {
    return Ask(field, x, x > 0 && x <= 1e6f, "more than 0 and at most 1e6");
  }
  Numbers& NotNegative(const char* field, float x) { return Ask(field, x, x >= 0, "0 or more"); }
  // A decay of state: at 1 the state would take in nothing new.
  Numbers& Memory(const char* field, float x) {
    return Ask(field, x, x >= 0 && x < 1, "at least 0 and below 1");
  }
  Numbers& Share(const char* field, float x) {
    return Ask(field, x, x > 0 && x <= 1, "more than 0 and at most 1");
  }
  // `prefix` stands before the field.
  std::optional<WrongNumber> First(const std::string& prefix) const {
    if (field_ == nullptr) return std::nullopt;
    return WrongNumber{prefix + field_, value_, expected_};
  }

 private:
  Numbers& Ask(const char* field, float x, bool holds, const char* expected) {
    if (field_ != nullptr || (holds && std::isfinite(x))) return *this;
    field_ = field;
    value_ = x;
    expected_ = expected;
    return *this;
  }

  const char* field_ = nullptr;
  float value_ = 0;
  const char* expected_ = nullptr;
};

void Ask(const math::Sgd::Params&, Numbers&) {}
void Ask(const math::Momentum::Params& p, Numbers& numbers) {
  numbers.Memory("momentum", p.momentum);
}
void Ask(const math::Adagrad::Params& p, Numbers& numbers) {
  numbers.NotNegative("initial_accumulator", p.initial_accumulator)
      .Positive("epsilon", p.epsilon)
      .Share("decay", p.decay);
}
void Ask(const math::RowWiseAdagrad::Params& p, Numbers& numbers) {
  numbers.NotNegative("initial_accumulator", p.initial_accumulator).Positive("epsilon", p.epsilon);
}
// Also for amsgrad and lamb.
void Ask(const math::Adam::Params& p, Numbers& numbers) {
  numbers.Memory("beta1", p.beta1).Memory("beta2", p.beta2).Positive("epsilon", p.epsilon);
}
void Ask(const math::Rmsprop::Params& p, Numbers& numbers) {
  numbers.Memory("decay", p.decay).Positive("epsilon", p.epsilon).Memory("momentum", p.momentum);
}
void Ask(const math::Adadelta::Params& p, Numbers& numbers) {
  numbers.Memory("decay", p.decay).Positive("epsilon", p.epsilon);
}
void Ask(const math::Ftrl::Params& p, Numbers& numbers) {
  numbers.NotNegative("beta", p.beta).NotNegative("l1", p.l1).NotNegative("l2", p.l2);
}

}  // namespace

std::string OptimizerKind(const v1::OptimizerSpec& spec) {
  if (spec.kind_case() == v1::OptimizerSpec::KIND_NOT_SET) return "none";
  return v1::OptimizerSpec::descriptor()->FindFieldByNumber(spec.kind_case())->name();
}

std::string OptimizerKinds() {
  const google::protobuf::OneofDescriptor& kinds = *v1::OptimizerSpec::descriptor()->oneof_decl(0);
  std::string names;
  for (int i = 0; i < kinds.field_count(); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ", kinds.field(i)->name());
  }
  return names;
}

bool IsOptimizer(const v1::OptimizerSpec& spec) {
  return VisitOptimizer(spec, [](auto, const auto&) { return true; });
}

std::string OptimizerName(const v1::OptimizerSpec& spec) {
  const bool more = spec.has_rmsprop() && spec.rmsprop().momentum() != 0;
  return absl::StrCat(OptimizerKind(spec), more ? " with momentum" : "");
}

OptimizerSlots SlotsOf(const v1::OptimizerSpec& spec) {
  return VisitOptimizer(spec, []<typename Formula>(std::type_identity<Formula>, const auto&) {
    return OptimizerSlots{.per_float = Formula::kSlots, .per_row = Formula::kRowSlots};
  });
}

bool StepsByWhole(const v1::OptimizerSpec& spec) {
  return VisitOptimizer(spec, []<typename Formula>(std::type_identity<Formula>, const auto&) {
    return Formula::kByWhole;
  });
}

math::RowOptions RowOptionsOf(const v1::OptimizerSpec& spec) {
  return {.l2 = spec.l2(),
          .weight_decay = spec.weight_decay(),
          .clip_value = spec.clip_value(),
          .clip_norm = spec.clip_norm()};
}

bool HasSummedSlots(const v1::OptimizerSpec& spec) {
  if (spec.has_adagrad()) return !spec.adagrad().has_decay() || spec.adagrad().decay() == 1;
  return spec.has_sgd() || spec.has_row_wise_adagrad();
}

std::optional<WrongNumber> FirstWrongNumber(const v1::OptimizerSpec& spec) {
  Numbers common;
  common.Factor("learning_rate", spec.learning_rate())
      .NotNegative("l2", spec.l2())
      .NotNegative("weight_decay", spec.weight_decay())
      .NotNegative("clip_value", spec.clip_value())
      .NotNegative("clip_norm", spec.clip_norm());
  std::optional<WrongNumber> wrong = common.First("");
  if (wrong.has_value()) return wrong;
  const Numbers own = VisitOptimizer(spec, [](auto, const auto& params) {
    Numbers numbers;
    Ask(params, numbers);
    return numbers;
  });
  return own.First(OptimizerKind(spec) + ".");
}

}  // namespace tessera
