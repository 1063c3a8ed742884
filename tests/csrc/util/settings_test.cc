// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace msrec {
namespace {

TEST(Settings, AreFoundByTheirKeys) {
  const std::string text = "lives=100,network_workers=1/2,first_life=7";
  EXPECT_EQ(SettingIn(text, "lives", 3), 100u);
  EXPECT_EQ(SettingIn(text, "first_life", 3), 7u);
  EXPECT_EQ(SettingIn(text, "kills", 3), 3u);
  EXPECT_EQ(SettingIn("", "lives", 3), 3u);
}

TEST(Settings, AnUnknownKeyIsAnErrorThatNamesTheLegalKeys) {
  for (const char* text : {"livs=100", "lives=1,livs=100", "lives"}) {
    try {
      SettingIn(text, "kills", 0);
      ADD_FAILURE() << text;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find("keys lives first_life"), std::string::npos);
    }
  }
  EXPECT_THROW(SettingIn("lives=many", "lives", 0), std::invalid_argument);
}

}  // namespace
}  // namespace msrec
