// DIEN's auxiliary loss: its value and gradients against the paper's equation, written here once
// more in double precision; what it teaches; and that nothing but training knows of it.
#include <limits>

#include "tests/worker/zoo_testing.h"
#include "worker/onnx/export.h"

namespace tessera::worker::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint32_t kBatch = 7;
constexpr int64_t kPlaces = 4;

// TinyJob with the loss: units 6 of behaviours of dim 4.
v1::JobSpec DienJob(const google::protobuf::Struct& options) {
  v1::JobSpec spec = TinyJob("dien");
  spec.mutable_model()->mutable_options()->MergeFrom(options);
  return spec;
}

Options Weighing(double weight) { return Options().Set("auxiliary", weight); }

// A second sequence column, like TinyJob's.
void AddSequence(const std::string& name, v1::JobSpec& spec) {
  v1::ColumnSpec column = spec.data().columns(spec.data().columns_size() - 1);
  column.set_name(name);
  *spec.mutable_data()->add_columns() = column;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

using Numbers = std::vector<double>;

Numbers Doubles(absl::Span<const float> values) { return {values.begin(), values.end()}; }

// The loss of a batch by the formula, of parameters and inputs that can be moved.
struct Reference {
  explicit Reference(Session& session) {
    const Model& model = session.model;
    for (const GraphParameter& parameter : model.graph().parameters()) {
      if (!parameter.spec.trained) continue;
      tensors[parameter.name] =
          Doubles(absl::MakeSpan(session.trained).subspan(parameter.offset, parameter.floats));
    }
    for (size_t i = 0; i < model.inputs().size(); ++i) {
      tensors[NameOf(model, model.inputs()[i].tensor)] = Doubles(session.executor.pooled(i));
    }
    for (size_t i = 0; i < model.lengths().size(); ++i) {
      tensors[NameOf(model, model.lengths()[i].tensor)] = Doubles(session.executor.length(i));
    }
  }
  static std::string NameOf(const Model& model, int32_t tensor) {
    return model.graph().tensors()[tensor].name;
  }

  // sum_j w[row, j] x[j]
  static double Dot(const Numbers& w, size_t row, const double* x, size_t n) {
    double sum = 0;
    for (size_t j = 0; j < n; ++j) sum += w[row * n + j] * x[j];
    return sum;
  }

  // The states of a sample, [places, units].
  Numbers States(size_t sample) const {
    const Numbers &w = tensors.at("interest/gru/weight"),
                  &u = tensors.at("interest/gru/recurrence"), &b = tensors.at("interest/gru/bias"),
                  &rows = tensors.at("s.embedding");
    const size_t units = b.size() / 6, dim = w.size() / (3 * units);
    Numbers h(units, 0), states;
    for (size_t t = 0; t < kPlaces; ++t) {
      const double* const x = rows.data() + (sample * kPlaces + t) * dim;
      Numbers next(units);
      for (size_t k = 0; k < units; ++k) {
        const auto gate = [&](size_t g) {
          const size_t row = g * units + k;
          return std::pair(Dot(w, row, x, dim) + b[row],
                           Dot(u, row, h.data(), units) + b[3 * units + row]);
        };
        const auto [zx, zh] = gate(0);
        const auto [rx, rh] = gate(1);
        const auto [nx, nh] = gate(2);
        const double z = Sigmoid(zx + zh);
        next[k] = (1 - z) * std::tanh(nx + Sigmoid(rx + rh) * nh) + z * h[k];
      }
      h = next;
      states.insert(states.end(), h.begin(), h.end());
    }
    return states;
  }

  // s(h, e)
  double Score(const double* h, size_t units, const double* e, size_t dim) const {
    const auto hidden = tensors.find("auxiliary/1/linear/weight");
    if (hidden != tensors.end()) {
      Numbers x(h, h + units), y;
      x.insert(x.end(), e, e + dim);
      const Numbers& bias = tensors.at("auxiliary/1/linear/bias");
      for (size_t k = 0; k < bias.size(); ++k) {
        y.push_back(Sigmoid(bias[k] + Dot(hidden->second, k, x.data(), x.size())));
      }
      return tensors.at("auxiliary/score/bias")[0] +
             Dot(tensors.at("auxiliary/score/weight"), 0, y.data(), y.size());
    }
    Numbers near(h, h + units);
    if (const auto map = tensors.find("auxiliary/map/weight"); map != tensors.end()) {
      near.clear();
      for (size_t k = 0; k < dim; ++k) near.push_back(Dot(map->second, k, h, units));
    }
    return Dot(near, 0, e, dim);
  }

  // Of each sample; negatives of the data where there are some.
  Numbers Losses(size_t batch) const {
    if (batch == 0) return {};
    const bool given = tensors.contains("other.embedding");
    const Numbers& rows = tensors.at("s.embedding");
    const Numbers& other = tensors.at(given ? "other.embedding" : "s.embedding");
    const Numbers& lengths = tensors.at("s.length");
    const Numbers& other_lengths = tensors.at(given ? "other.length" : "s.length");
    const size_t dim = rows.size() / batch / kPlaces;
    Numbers losses;
    for (size_t i = 0; i < batch; ++i) {
      const size_t from = given ? i : (i + batch / 2) % batch;
      double loss = 0;
      const Numbers states = States(i);
      const size_t units = states.size() / kPlaces;
      for (size_t t = 0; t + 1 < kPlaces; ++t) {
        if (t + 1 >= lengths[i] || t + 1 >= other_lengths[from] || (!given && from == i)) continue;
        const double* const h = states.data() + t * units;
        const auto place = [&](const Numbers& of, size_t sample) {
          return of.data() + (sample * kPlaces + t + 1) * dim;
        };
        loss -= std::log(Sigmoid(Score(h, units, place(rows, i), dim)));
        loss -= std::log(1 - Sigmoid(Score(h, units, place(other, from), dim)));
      }
      losses.push_back(loss);
    }
    return losses;
  }

  std::map<std::string, Numbers> tensors;  // trained parameters and inputs, by name
};

// A job with the loss, and one without it that has the same numbers.
struct Pair {
  Pair(v1::JobSpec spec, uint32_t batch) : with_model(MakeModel(spec)), with(*with_model) {
    (*spec.mutable_model()->mutable_options()->mutable_fields())["auxiliary"].set_number_value(0);
    without_model = MakeModel(spec);
    without = std::make_unique<Session>(*without_model);
    with.Fill(batch, 3);
    const std::vector<float> moved = Normals(8, with.trained.size(), 0.3f);
    for (size_t i = 0; i < moved.size(); ++i) with.trained[i] += moved[i];
    without->executor.Resize(batch);
    CopyFeatures(with, *without);
    without->labels = with.labels;
    // The loss's own parameters stand behind all others.
    std::copy_n(with.trained.begin(), without->trained.size(), without->trained.begin());
  }
  static void CopyFeatures(Session& from, Session& to) {
    const auto copy = [](absl::Span<const float> a, absl::Span<float> b) {
      std::copy(a.begin(), a.end(), b.begin());
    };
    copy(from.executor.dense(), to.executor.dense());
    for (size_t i = 0; i < to.model.inputs().size(); ++i) {
      for (size_t k = 0; k < from.model.inputs().size(); ++k) {
        if (SameName(from.model, from.model.inputs()[k].tensor, to.model,
                     to.model.inputs()[i].tensor)) {
          copy(from.executor.pooled(k), to.executor.pooled(i));
        }
      }
    }
    for (size_t i = 0; i < to.model.lengths().size(); ++i) {
      for (size_t k = 0; k < from.model.lengths().size(); ++k) {
        if (SameName(from.model, from.model.lengths()[k].tensor, to.model,
                     to.model.lengths()[i].tensor)) {
          copy(from.executor.length(k), to.executor.length(i));
        }
      }
    }
  }
  static bool SameName(const Model& a, int32_t x, const Model& b, int32_t y) {
    return Reference::NameOf(a, x) == Reference::NameOf(b, y);
  }

  std::unique_ptr<Model> with_model, without_model;
  Session with;
  std::unique_ptr<Session> without;
};

std::vector<v1::JobSpec> Jobs() {
  using Ints = std::vector<int64_t>;
  v1::JobSpec mapped = DienJob(Weighing(0.5));
  v1::JobSpec plain = DienJob(Weighing(2).Set("units", 4.0));
  v1::JobSpec network = DienJob(Weighing(1).Set("auxiliary_hidden", Ints{5}));
  v1::JobSpec given = DienJob(Weighing(1.5).Set("negative", std::string("other")));
  AddSequence("other", given);
  v1::JobSpec given_network = network;
  given_network.mutable_model()->mutable_options()->MergeFrom(
      Options().Set("negative", std::string("other")));
  AddSequence("other", given_network);
  return {mapped, plain, network, given, given_network};
}

double WeightOf(const v1::JobSpec& spec) {
  return spec.model().options().fields().at("auxiliary").number_value();
}

TEST(DienAuxiliary, AddsThePapersLoss) {
  for (const v1::JobSpec& spec : Jobs()) {
    for (const uint32_t batch : {0u, 1u, 2u, kBatch, 300u}) {
      SCOPED_TRACE(spec.model().options().ShortDebugString() + std::to_string(batch));
      Pair pair(spec, batch);
      double expected = 0;
      for (const double loss : Reference(pair.with).Losses(batch)) expected += loss;
      const double added = pair.with.Step().loss_sum - pair.without->Step().loss_sum;
      EXPECT_NEAR(added, WeightOf(spec) * expected, 2e-5 * batch);
      if (batch >= kBatch) {
        EXPECT_GT(expected, 1);
      }
    }
  }
}

TEST(DienAuxiliary, OfASampleIsWeighedAsTheSampleIs) {
  const v1::JobSpec spec = DienJob(Weighing(0.5));
  Pair pair(spec, kBatch);
  std::vector<float> weights;
  for (uint32_t i = 0; i < kBatch; ++i) weights.push_back(0.25f * static_cast<float>(i));
  const auto loss_of = [&](Session& session) {
    return ForwardBackward(session.executor,
                           {.trained = session.trained,
                            .statistics = session.statistics,
                            .targets = {session.labels, 1, weights, {}},
                            .dropout_step = 5,
                            .trained_gradient = absl::MakeSpan(session.trained_gradient),
                            .statistics_gradient = absl::MakeSpan(session.statistics_gradient)})
        .loss_sum;
  };
  const Numbers losses = Reference(pair.with).Losses(kBatch);
  double expected = 0;
  for (uint32_t i = 0; i < kBatch; ++i) expected += weights[i] * losses[i];
  EXPECT_NEAR(loss_of(pair.with) - loss_of(*pair.without), 0.5 * expected, 1e-4);
}

// Against differences of the formula, element by element: of parameters, behaviours and negatives.
TEST(DienAuxiliary, AddsThePapersGradients) {
  constexpr double kStep = 1e-4, kScale = 0.25;
  for (const v1::JobSpec& spec : Jobs()) {
    SCOPED_TRACE(spec.model().options().ShortDebugString());
    Pair pair(spec, kBatch);
    Reference reference(pair.with);
    pair.with.Step(kScale);
    pair.without->Step(kScale);
    const auto check = [&](const std::string& name, absl::Span<const float> with,
                           absl::Span<const float> without) {
      Numbers& values = reference.tensors.at(name);
      ASSERT_EQ(values.size(), with.size()) << name;
      double largest = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double before = values[i];
        double sums[2] = {0, 0};
        for (const int side : {0, 1}) {
          values[i] = before + (side == 0 ? -kStep : kStep);
          for (const double loss : reference.Losses(kBatch)) sums[side] += loss;
        }
        values[i] = before;
        const double slope = kScale * WeightOf(spec) * (sums[1] - sums[0]) / (2 * kStep);
        const double added = without.empty() ? with[i] : static_cast<double>(with[i]) - without[i];
        ASSERT_NEAR(added, slope, 2e-5) << name << ", element " << i;
        largest = std::max(largest, std::fabs(slope));
      }
      const bool learns = name.starts_with("interest/") || name.starts_with("auxiliary/") ||
                          name == "s.embedding" || name == "other.embedding";
      EXPECT_EQ(largest > 1e-3, learns) << name;
    };
    for (const GraphParameter& parameter : pair.with_model->graph().parameters()) {
      if (!parameter.spec.trained) continue;
      const auto part = [&](const std::vector<float>& all) {
        return parameter.offset < all.size()
                   ? absl::MakeConstSpan(all).subspan(parameter.offset, parameter.floats)
                   : absl::Span<const float>();
      };
      check(parameter.name, part(pair.with.trained_gradient), part(pair.without->trained_gradient));
    }
    for (size_t i = 0; i < pair.with_model->inputs().size(); ++i) {
      absl::Span<const float> without;
      for (size_t k = 0; k < pair.without_model->inputs().size(); ++k) {
        if (Pair::SameName(*pair.with_model, pair.with_model->inputs()[i].tensor,
                           *pair.without_model, pair.without_model->inputs()[k].tensor)) {
          without = pair.without->executor.pooled_gradient(k);
        }
      }
      check(Reference::NameOf(*pair.with_model, pair.with_model->inputs()[i].tensor),
            pair.with.executor.pooled_gradient(i), without);
    }
  }
}

TEST(DienAuxiliary, ChangesNoPredictionAndReadsNothingForOne) {
  for (const v1::JobSpec& spec : Jobs()) {
    SCOPED_TRACE(spec.model().options().ShortDebugString());
    Pair pair(spec, kBatch);
    for (size_t i = 0; i < pair.with_model->inputs().size(); ++i) {
      if (Reference::NameOf(*pair.with_model, pair.with_model->inputs()[i].tensor) !=
          "other.embedding") {
        continue;
      }
      for (float& value : pair.with.executor.pooled(i)) {
        value = std::numeric_limits<float>::quiet_NaN();
      }
    }
    EXPECT_EQ(pair.with.Forward(), pair.without->Forward());
  }
}

TEST(DienAuxiliary, IsNotInAnOnnxFile) {
  for (const v1::JobSpec& spec : Jobs()) {
    SCOPED_TRACE(spec.model().options().ShortDebugString());
    Pair pair(spec, kBatch);
    const auto file = [&spec](Session& session) {
      const auto exported =
          ExportModel(spec, session.model, session.trained, session.statistics, {});
      EXPECT_TRUE(exported.ok()) << exported.status();
      return exported.ok() ? exported->SerializeAsString() : "";
    };
    EXPECT_EQ(file(pair.with), file(*pair.without));
  }
}

// Behaviours walk around a ring of items, each from a start of its own; labels say nothing. With
// the loss states come to be near the item that follows; without it they do not.
TEST(DienAuxiliary, TeachesTheStatesWhatComesNext) {
  constexpr uint32_t kSamples = 64;
  constexpr int kItems = 6, kDim = 4;
  const std::vector<float> items = Normals(41, kItems * kDim);
  const auto nearer = [&](double weight) {
    const std::unique_ptr<Model> model = MakeModel(DienJob(Weighing(weight).Set("units", 4.0)));
    Session session(*model);
    session.Fill(kSamples, 12);
    for (size_t i = 0; i < model->inputs().size(); ++i) {
      if (model->inputs()[i].sequence.empty()) continue;
      const absl::Span<float> rows = session.executor.pooled(i);
      for (uint32_t b = 0; b < kSamples; ++b) {
        for (int64_t t = 0; t < kPlaces; ++t) {
          const uint64_t item = (RandomBits(5, b) + static_cast<uint64_t>(t)) % kItems;
          std::copy_n(items.begin() + static_cast<int64_t>(item) * kDim, kDim,
                      rows.begin() + (b * kPlaces + t) * kDim);
        }
      }
    }
    for (float& length : session.executor.length(0)) length = kPlaces;
    for (int step = 0; step < 400; ++step) {
      session.Step(1.0f / kSamples, static_cast<uint64_t>(step));
      for (size_t i = 0; i < session.trained.size(); ++i) {
        session.trained[i] -= 0.5f * session.trained_gradient[i];
      }
    }
    // The share of all other items that a state is further from than from the next one.
    const Reference reference(session);
    int right = 0, all = 0;
    for (uint32_t b = 0; b < kSamples; ++b) {
      const Numbers states = reference.States(b);
      for (int64_t t = 0; t + 1 < kPlaces; ++t) {
        const uint64_t next = (RandomBits(5, b) + static_cast<uint64_t>(t) + 1) % kItems;
        const auto score = [&](uint64_t item) {
          const Numbers e = Doubles(absl::MakeConstSpan(items).subspan(item * kDim, kDim));
          return reference.Score(states.data() + t * kDim, kDim, e.data(), kDim);
        };
        for (uint64_t item = 0; item < kItems; ++item) {
          if (item == next) continue;
          ++all;
          right += score(next) > score(item) ? 1 : 0;
        }
      }
    }
    return static_cast<double>(right) / all;
  };
  EXPECT_GT(nearer(1), 0.9);
  EXPECT_LT(nearer(0), 0.7);
}

TEST(DienAuxiliary, OfNoWeightNeedsNoneOfItsColumns) {
  v1::JobSpec spec = DienJob(Weighing(0));
  for (const char* name : {"s2", "n", "n2"}) AddSequence(name, spec);
  const auto set = [&](const char* option, std::initializer_list<const char*> columns) {
    auto& value = (*spec.mutable_model()->mutable_options()->mutable_fields())[option];
    value.mutable_list_value()->clear_values();
    for (const char* column : columns) {
      value.mutable_list_value()->add_values()->set_string_value(column);
    }
  };
  set("sequence", {"s", "s2"});
  set("target", {"c0", "c1"});
  const std::unique_ptr<Model> without = MakeModel(spec);
  ASSERT_NE(without, nullptr);
  set("negative", {"n", "n2"});
  const std::unique_ptr<Model> model = MakeModel(spec);
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->graph().nodes().size(), without->graph().nodes().size());
  EXPECT_EQ(model->inputs().size(), without->inputs().size());
  set("negative", {"n", "nothing"});
  EXPECT_THAT(ErrorOf(spec), HasSubstr("model.options.negative: no column \"nothing\""));
}

TEST(DienAuxiliary, RefusesWhatItCannotCompare) {
  const auto error = [](const google::protobuf::Struct& options) {
    v1::JobSpec spec = DienJob(options);
    AddSequence("long", spec);
    spec.mutable_data()->mutable_columns(spec.data().columns_size() - 1)->set_max_length(9);
    AddSequence("elsewhere", spec);
    v1::ColumnSpec* column = spec.mutable_data()->mutable_columns(spec.data().columns_size() - 1);
    column->set_max_length(kPlaces);
    column->set_table(0, "linear");
    return ErrorOf(spec);
  };
  const auto of = [&](const std::string& negative) {
    return error(Weighing(1).Set("negative", negative));
  };
  EXPECT_THAT(error(Weighing(-1)), StartsWith("model.options.auxiliary: expected a number"));
  EXPECT_THAT(of("sequence"),
              HasSubstr("model.options.negative: no column \"sequence\" has the pooling sequence"));
  EXPECT_THAT(of("long"), HasSubstr("that of \"long\" is 9, expected 4"));
  EXPECT_THAT(of("elsewhere"), HasSubstr("\"elsewhere\" does not read the table \"embedding\""));
  google::protobuf::Struct two = Weighing(1);
  for (int i = 0; i < 2; ++i) {
    (*two.mutable_fields())["negative"].mutable_list_value()->add_values()->set_string_value("s");
  }
  EXPECT_THAT(error(two), HasSubstr("needs as many columns as model.options.sequence, 1, found 2"));
  v1::JobSpec one = DienJob(Weighing(1));
  one.mutable_data()->mutable_columns(one.data().columns_size() - 1)->set_max_length(1);
  EXPECT_THAT(ErrorOf(one), HasSubstr("needs sequences whose max_length is 2 or more, found 1"));
}

}  // namespace
}  // namespace tessera::worker::testing
