#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/struct.pb.h"

namespace tessera::worker {

// The end of a message about an unknown name: "; did you mean "x"? Known are x, y, z",
// or "; there are none".
std::string KnownNames(absl::string_view wanted, const std::vector<std::string>& known);

// Writes a google.protobuf.Struct in one expression: Options().Set("units", 400).
class Options {
 public:
  Options&& Set(const std::string& name, double value) &&;
  Options&& Set(const std::string& name, bool value) &&;
  Options&& Set(const std::string& name, const std::string& value) &&;
  Options&& Set(const std::string& name, const std::vector<int64_t>& values) &&;
  operator google::protobuf::Struct() && { return std::move(fields_); }

 private:
  google::protobuf::Struct fields_;
};

// An option that was read, and its value: what is set, or the default.
struct OptionValue {
  std::string name;
  google::protobuf::Value value;
  bool is_set = false;
};

// Reads options by name and type. Each getter returns the default if the option is not set. Finish
// reports an option that nobody read, else the first wrong type or value. Not thread-safe; `fields`
// is borrowed.
class OptionReader {
 public:
  // `path` names the options in messages: "model.options" makes "model.options.hidden: expected
  // ...".
  OptionReader(const google::protobuf::Struct& fields, std::string path)
      : fields_(fields), path_(std::move(path)) {}

  OptionReader(google::protobuf::Struct&&, std::string) = delete;

  bool Has(absl::string_view name) const;
  bool Bool(const std::string& name, bool by_default);
  int64_t Int(const std::string& name, int64_t by_default, int64_t min, int64_t max);
  // min <= value <= max; with `below_max` value < max.
  double Number(const std::string& name, double by_default, double min, double max,
                bool below_max = false);
  std::string Text(const std::string& name, const std::string& by_default);
  // One of `allowed`.
  std::string Choice(const std::string& name, const std::string& by_default,
                     const std::vector<std::string>& allowed);
  // A list of whole numbers; a single number is a list of one.
  std::vector<int64_t> Ints(const std::string& name, const std::vector<int64_t>& by_default,
                            int64_t min, int64_t max);

  // A list of finite numbers; a single number is a list of one.
  std::vector<double> Numbers(const std::string& name, const std::vector<double>& by_default);
  // A list of texts; a single text is a list of one.
  std::vector<std::string> Texts(const std::string& name);

  // Makes `message` the error of option `name`, unless there is one already.
  void Fail(const std::string& name, absl::string_view message);
  // The first wrong type or value of those that have been read.
  const absl::Status& error() const { return error_; }
  // Call once every option has been read.
  absl::Status Finish();
  // Those that have been read, each once, in their order.
  const std::vector<OptionValue>& read() const { return read_; }

 private:
  // The value that is set; nullptr: none. Adds the option to those that have been read.
  const google::protobuf::Value* Find(const std::string& name, google::protobuf::Value by_default);
  // Says what was expected and what was found.
  void Expected(const std::string& name, absl::string_view expected,
                const google::protobuf::Value& found);

  const google::protobuf::Struct& fields_;
  const std::string path_;
  std::vector<OptionValue> read_;
  absl::Status error_;
};

}  // namespace tessera::worker
