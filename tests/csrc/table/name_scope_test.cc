// SPDX-License-Identifier: Apache-2.0
//
// Names of tables: of two in one scope the newer has it; those of different scopes do not meet.
#include <gtest/gtest.h>

#include "table/table.h"
#include "table_testing.h"
#include "testing.h"
#include "workers/registry.h"

namespace msrec {
namespace {

TableConfig Named(const std::string& name, int64_t scope) {
  TableConfig config = NormalConfig(name, 2);
  config.scope = scope;
  return config;
}

TEST(NameScopeTest, TablesOfDifferentScopesDoNotMeet) {
  const auto program = CreateTable(Named("scoped", 0));
  const auto first = CreateTable(Named("scoped", 1));
  const auto second = CreateTable(Named("scoped", 2));
  EXPECT_THROW(CreateTable(Named("scoped", 1)), NameTaken);
  for (const auto& each : {program, first, second}) {
    EXPECT_EQ(FindTable(each->id)->table, each->table);
  }
  EXPECT_EQ(FindTableByName("scoped"), program->table);

  const auto newer = CreateTable(Named("scoped", 1), true);
  EXPECT_THROW(FindTable(first->id), TableReplaced);
  EXPECT_EQ(FindTable(second->id)->table, second->table);
  EXPECT_EQ(FindTable(program->id)->table, program->table);
  CloseTable(newer->id);
  EXPECT_EQ(FindTable(first->id)->table, first->table);

  CloseTable(program->id);
  EXPECT_EQ(FindTableByName("scoped"), nullptr);
  EXPECT_EQ(FindTable(second->id)->table, second->table);
  CloseTable(first->id);
  CloseTable(second->id);
}

}  // namespace
}  // namespace msrec
