#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/worker/dense_job_testing.h"

namespace tessera::worker::testing {

inline bool HasActivation(const std::string& model) {
  return model != "lr" && model != "fm" && model != "ffm" && model != "fwfm";
}

// A model of the zoo as small as it can be with all its parts: 5 sparse columns of dim 4 and 3
// dense ones, layers of 17 and 9 or less.
inline v1::JobSpec TinyJob(const std::string& model) {
  using Ints = std::vector<int64_t>;
  const google::protobuf::Struct norm = Options().Set("batch_norm", true).Set("dropout", 0.25);
  const std::map<std::string, google::protobuf::Struct> special = {
      {"afm", Options().Set("attention", 6.0).Set("attention_dropout", 0.2).Set("dropout", 0.25)},
      {"afn", Options().Set("log_neurons", 7.0).Set("afn_hidden", Ints{17}).Set("ensemble", false)},
      {"autoint", Options()
                      .Set("attention", 6.0)
                      .Set("layer_norm", true)
                      .Set("scale", true)
                      .Set("attention_dropout", 0.2)},
      {"dcn_v2", Options().Set("low_rank", 2.0)},
      {"dien", Options()
                   .Set("sequence", std::string("s"))
                   .Set("target", std::string("c1"))
                   .Set("units", 6.0)
                   .Set("evolution", 5.0)},
      {"din", Options()
                  .Set("sequence", std::string("s"))
                  .Set("target", std::string("c1"))
                  .Set("attention", Ints{6})},
      {"dlrm", Options().Set("bottom", Ints{6})},
      {"edcn", Options().Set("cross_layers", 2.0)},
      {"finalmlp", Options()
                       .Set("mlp1", Ints{8})
                       .Set("mlp2", Ints{6})
                       .Set("heads", 2.0)
                       .Set("gate_hidden", Ints{5})},
      {"finalnet", Options().Set("block1", Ints{6}).Set("block2", Ints{5})},
      {"masknet", Options().Set("blocks", 2.0).Set("block_dim", 6.0).Set("reduction_ratio", 0.5)},
      {"mmoe", Options().Set("experts", 2.0).Set("tower", Ints{6})},
      {"shared_bottom", Options().Set("tower", Ints{6})},
      {"xdeepfm", Options().Set("cin", Ints{3, 2})},
  };
  v1::JobSpec spec = Job(model, 5, 3);
  const bool no_mlp = !HasActivation(model) || model == "afm";
  const bool own_widths = model == "edcn" || model == "finalmlp" || model == "finalnet";
  if (!no_mlp) SetOptions(spec, own_widths ? norm : SmallMlp());
  if (special.contains(model))
    spec.mutable_model()->mutable_options()->MergeFrom(special.at(model));
  if (model == "din" || model == "dien") {
    v1::ColumnSpec* column = spec.mutable_data()->add_columns();
    column->set_name("s");
    column->set_role(v1::SPARSE);
    column->add_table("embedding");
    column->set_separator("|");
    column->set_pooling(v1::SEQUENCE);
    column->set_max_length(4);
  }
  if (model == "mmoe" || model == "shared_bottom") {
    for (const char* name : {"click", "buy"}) {
      v1::TaskSpec* task = spec.mutable_model()->add_tasks();
      task->set_name(name);
      task->set_label("label");
    }
  }
  return spec;
}

}  // namespace tessera::worker::testing
