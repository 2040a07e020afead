// Numbers that name the elements of a sequence. Every sequence has an Id type of its own, so the number of a slot cannot be taken for the
// number of a node, and an Indexed vector accepts its own numbers only.
#pragma once
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace pyflame {

template <class Tag>
class Id {
 public:
  constexpr Id() = default;  // names no element
  template <std::integral N>
  constexpr explicit Id(N number) : value_(static_cast<int32_t>(number)) {}
  constexpr bool valid() const { return value_ >= 0; }
  constexpr int32_t value() const { return value_; }
  constexpr size_t index() const { return static_cast<size_t>(value_); }
  constexpr Id& operator++() {
    ++value_;
    return *this;
  }
  friend constexpr auto operator<=>(Id, Id) = default;  // NOLINT(modernize-use-nullptr): the compiler made it

 private:
  int32_t value_ = -1;
};

// The numbers [first, stop) in order.
template <class I>
struct IdRange {
  struct Iterator {
    I id;
    constexpr I operator*() const { return id; }
    constexpr Iterator& operator++() {
      ++id;
      return *this;
    }
    constexpr bool operator==(const Iterator&) const = default;
  };
  I first, stop;
  constexpr Iterator begin() const { return {first}; }
  constexpr Iterator end() const { return {stop}; }
};

// A vector whose elements are named by I.
template <class I, class T>
class Indexed {
 public:
  Indexed() = default;
  explicit Indexed(size_t n, const T& value = T()) : items_(n, value) {}
  Indexed(std::initializer_list<T> items) : items_(items) {}

  decltype(auto) operator[](I id) { return items_[id.index()]; }
  decltype(auto) operator[](I id) const { return items_[id.index()]; }
  I push_back(T item) {
    items_.push_back(std::move(item));
    return I(items_.size() - 1);
  }
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  bool contains(I id) const { return id.valid() && id.index() < items_.size(); }
  I end_id() const { return I(items_.size()); }  // the name of the element that is added next
  IdRange<I> ids() const { return {I(0), end_id()}; }
  void reserve(size_t n) { items_.reserve(n); }
  void resize(size_t n, const T& value = T()) { items_.resize(n, value); }
  void assign(size_t n, const T& value) { items_.assign(n, value); }
  void clear() { items_.clear(); }
  decltype(auto) back() { return items_.back(); }
  decltype(auto) back() const { return items_.back(); }
  auto begin() { return items_.begin(); }
  auto begin() const { return items_.begin(); }
  auto end() { return items_.end(); }
  auto end() const { return items_.end(); }
  auto data() { return items_.data(); }
  auto data() const { return items_.data(); }
  bool operator==(const Indexed&) const = default;

 private:
  std::vector<T> items_;
};

// Elements that are named by I and belong to somebody else.
template <class I, class T>
class IndexedView {
 public:
  constexpr IndexedView() = default;
  constexpr IndexedView(T* data) : data_(data) {}
  T& operator[](I id) const { return data_[id.index()]; }
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
};

}  // namespace pyflame
