// SPDX-License-Identifier: Apache-2.0
//
// SipHash (Aumasson, Bernstein 2012): a keyed hash. Without the key, nobody can compute the hash of
// a message, even from any number of known hashes of other messages. SipHash-1-3 uses one round per
// word and three rounds at the end. The hash does not include the message length, because all
// messages that are hashed with one key have the same length.
#pragma once

#include <sys/random.h>

#include <cstdint>
#include <stdexcept>

namespace msrec {

class SipHash {
 public:
  SipHash(uint64_t key0, uint64_t key1)
      : v0_(key0 ^ 0x736f6d6570736575ULL),
        v1_(key1 ^ 0x646f72616e646f6dULL),
        v2_(key0 ^ 0x6c7967656e657261ULL),
        v3_(key1 ^ 0x7465646279746573ULL) {}

  // The key is 16 random bytes from the system, and must stay secret. Throws std::runtime_error if
  // the system provides no random bytes.
  static SipHash WithRandomKey() {
    uint64_t key[2];
    if (getentropy(key, sizeof(key)) != 0) {
      throw std::runtime_error("the system gave no random numbers");
    }
    return SipHash(key[0], key[1]);
  }

  void Add(uint64_t word) {
    v3_ ^= word;
    Round();
    v0_ ^= word;
  }

  // Returns the hash of all words that were added so far. After Sum, the caller may add more words.
  uint64_t Sum() const {
    SipHash end = *this;
    end.v2_ ^= 0xff;
    end.Round();
    end.Round();
    end.Round();
    return end.v0_ ^ end.v1_ ^ end.v2_ ^ end.v3_;
  }

 private:
  static uint64_t Rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

  void Round() {
    v0_ += v1_;
    v1_ = Rotate(v1_, 13) ^ v0_;
    v0_ = Rotate(v0_, 32);
    v2_ += v3_;
    v3_ = Rotate(v3_, 16) ^ v2_;
    v0_ += v3_;
    v3_ = Rotate(v3_, 21) ^ v0_;
    v2_ += v1_;
    v1_ = Rotate(v1_, 17) ^ v2_;
    v2_ = Rotate(v2_, 32);
  }

  uint64_t v0_, v1_, v2_, v3_;
};

}  // namespace msrec
