// What ValidateJobSpec says of missing labels, padding of ids, and ids of queries.
#include "tests/common/job_validate_testing.h"

namespace tessera {
namespace {

v1::ColumnSpec* ColumnOf(v1::JobSpec& spec, int i) {
  return spec.mutable_data()->mutable_columns(i);
}

TEST(ValidateColumns, TakesWhatStandsForNoLabelAndNoId) {
  v1::JobSpec spec = GoodSpec();
  for (const char* value : {"", "nan", "NaN", "-1", "none"}) {
    ColumnOf(spec, 0)->set_missing_value(value);
    EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus()) << value;
  }
  for (const char* id : {"0", "-1"}) {
    ColumnOf(spec, 2)->set_padding_id(id);
    EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus()) << id;
  }
  ColumnOf(spec, 3)->set_padding_id("<pad>");
  EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());
  // 0 is no label of two classes, but may stand for none of others.
  ColumnOf(spec, 0)->set_missing_value("0");
  EXPECT_NE(ValidateJobSpec(spec), absl::OkStatus());
  spec.mutable_model()->set_loss(v1::MEAN_SQUARED_ERROR);
  EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());
}

TEST(ValidateColumns, NamesTheWrongMarker) {
  ExpectRefused(
      GoodSpec(),
      {
          {[](auto& s) { ColumnOf(s, 1)->set_missing_value("nan"); },
           "data.columns[1].missing_value",
           "belongs to label columns, and the role of 'price' is dense"},
          {[](auto& s) {
             ColumnOf(s, 0)->set_missing_value("");
             ColumnOf(s, 0)->set_default_value("0");
           },
           "data.columns[0].missing_value", "leave one of both out"},
          {[](auto& s) { ColumnOf(s, 0)->set_missing_value("1.0"); },
           "data.columns[0].missing_value", "found '1.0', which is one of the labels 0 and 1"},
          {[](auto& s) { ColumnOf(s, 1)->set_padding_id("0"); }, "data.columns[1].padding_id",
           "belongs to sparse columns, and the role of 'price' is dense"},
          {[](auto& s) { ColumnOf(s, 2)->set_padding_id("pad"); }, "data.columns[2].padding_id",
           "found 'pad'; expected a number, as the ids of 'user' are"},
          {[](auto& s) { ColumnOf(s, 2)->set_qid(true); }, "data.columns[2].qid",
           "belongs to the format libsvm"},
      });
}

// GoodLibsvm with a label that may be missing, and queries.
v1::JobSpec GoodQueries() {
  v1::JobSpec spec = GoodLibsvm();
  v1::ColumnSpec* const label = spec.mutable_data()->add_columns();
  label->set_name("relevance");
  label->set_role(v1::LABEL);
  label->set_missing_value("nan");
  v1::ColumnSpec* const query = spec.mutable_data()->add_columns();
  query->set_name("query");
  query->set_role(v1::SPARSE);
  query->set_qid(true);
  spec.mutable_model()->set_loss(v1::LISTWISE_SOFTMAX);
  spec.mutable_model()->set_group_by("query");
  ColumnOf(spec, 0)->set_padding_id("10");
  return spec;
}

TEST(ValidateColumns, TakesTheQueriesOfLibsvm) {
  v1::JobSpec spec = GoodQueries();
  EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());
  spec.mutable_model()->clear_loss();
  spec.mutable_model()->clear_group_by();
  ColumnOf(spec, 2)->set_role(v1::IGNORED);
  EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());
}

TEST(ValidateColumns, NamesWhatLibsvmHasNot) {
  ExpectRefused(
      GoodQueries(),
      {
          {[](auto& s) { ColumnOf(s, 1)->set_missing_value(""); }, "data.columns[1].missing_value",
           "libsvm files have no empty labels"},
          {[](auto& s) { ColumnOf(s, 1)->set_missing_value("not known"); },
           "data.columns[1].missing_value", "expected the word"},
          {[](auto& s) { ColumnOf(s, 0)->set_padding_id("1000"); }, "data.columns[0].padding_id",
           "found '1000'; expected an index of the column, 10 .. 999"},
          {[](auto& s) { ColumnOf(s, 0)->set_padding_id("-1"); }, "data.columns[0].padding_id",
           "found '-1'; expected an index of the column, 10 .. 999"},
          {[](auto& s) { ColumnOf(s, 2)->set_index_end(5); }, "data.columns[2].qid",
           "leave out index_begin and index_end, or qid"},
          {[](auto& s) { ColumnOf(s, 1)->set_qid(true); }, "data.columns[1].qid",
           "belongs to sparse columns, and the role of 'relevance' is label"},
          {[](auto& s) {
             v1::ColumnSpec& ids = *ColumnOf(s, 0);
             ids.clear_index_begin();
             ids.clear_index_end();
             ids.clear_padding_id();
             ids.set_qid(true);
           },
           "data.columns[2].qid", "data.columns[0] has it already"},
          {[](auto& s) { ColumnOf(s, 2)->set_qid(false); }, "data.columns[2].index_end",
           "needs index_begin < index_end"},
      });
}

}  // namespace
}  // namespace tessera
