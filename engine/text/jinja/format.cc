#include "engine/text/jinja/format.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/jinja/big_int.h"
#include "engine/text/jinja/number_format.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_format.h"
#include "engine/text/jinja/strings.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

constexpr size_t kNone = absl::string_view::npos;

absl::Status Wrong(absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat("format: ", what)); }

// A number from the decimal digits at `*pos`; -1 if there are none.
absl::StatusOr<int64_t> TakeNumber(absl::string_view s, size_t* pos) {
  const size_t begin = *pos;
  while (*pos < s.size() && absl::ascii_isdigit(static_cast<unsigned char>(s[*pos]))) ++*pos;
  int64_t value = -1;
  if (*pos > begin && (*pos - begin > 10 || !absl::SimpleAtoi(s.substr(begin, *pos - begin), &value))) {
    return Wrong("a width or precision is too large");
  }
  return value;
}

// The first `count` characters; all of them if that is negative.
TextSlice FirstChars(const Text& text, int64_t count) {
  TextSlice slice = Whole(text);
  if (count < 0) return slice;
  slice.end = 0;
  for (; count > 0 && slice.end < text.bytes.size(); --count) slice.end += CharLength(text.bytes, slice.end);
  return slice;
}

absl::StatusOr<double> ToDouble(const Value& number) {
  if (number.IsWholeNumber()) return NearestFloat(number);
  return number.AsFloat();
}

bool IsFloatType(char type) { return absl::string_view("eEfFgG").find(type) != kNone; }

// `fill` around a number, or between its sign and its digits.
void AppendPadded(const NumberText& number, int64_t width, char align, absl::string_view fill, Origin origin,
                  TextBuilder& out) {
  const int64_t missing = std::max<int64_t>(width - static_cast<int64_t>(number.size()), 0);
  const int64_t before = align == '<' || align == '=' ? 0 : align == '^' ? missing / 2 : missing;
  const int64_t between = align == '=' ? missing : 0;
  out.AppendRepeated(fill, before, Origin::kTemplate);
  out.Append(number.sign, origin);
  out.Append(number.prefix, origin);
  out.AppendRepeated(fill, between, Origin::kTemplate);
  out.Append(number.digits, origin);
  out.AppendRepeated(fill, missing - before - between, Origin::kTemplate);
}

// ---- the % operator

class PercentFormatter {
 public:
  PercentFormatter(const Value& format, const Value& arguments, Heap& heap)
      : s_(format.AsView()), format_(format), arguments_(arguments), heap_(heap), out_(heap.budget()) {}

  absl::StatusOr<Value> Run() {
    for (size_t pos = 0; pos < s_.size();) {
      const size_t percent = std::min(s_.find('%', pos), s_.size());
      out_.Append(TextSlice{&format_.AsText(), pos, percent});
      if (percent == s_.size()) break;
      pos_ = percent + 1;
      SLUICE_RETURN_IF_ERROR(heap_.budget().Spend(1));
      SLUICE_RETURN_IF_ERROR(Directive());
      SLUICE_RETURN_IF_ERROR(out_.status());
      pos = pos_;
    }
    // What Python can look a key up in need not be used.
    const bool takes_keys =
        arguments_.is(Kind::kDict) || arguments_.is(Kind::kUndefined) || (arguments_.is(Kind::kList) && !IsTuple());
    if (!takes_keys && next_ < (IsTuple() ? arguments_.AsList().items.size() : 1)) {
      return Wrong("not all arguments were used");
    }
    SLUICE_ASSIGN_OR_RETURN(const Value result, heap_.NewString(std::move(out_)));
    return result.MarkupLike(format_);
  }

 private:
  bool IsTuple() const { return arguments_.is(Kind::kList) && arguments_.AsList().kind == ListKind::kTuple; }

  absl::StatusOr<Value> Next() {
    const size_t count = IsTuple() ? arguments_.AsList().items.size() : 1;
    if (next_ >= count) return Wrong("there are too few arguments");
    const size_t i = next_++;
    return IsTuple() ? arguments_.AsList().items[i] : arguments_;
  }

  // %(key): from the dict of arguments.
  absl::StatusOr<std::optional<Value>> Keyed() {
    if (pos_ >= s_.size() || s_[pos_] != '(') return std::optional<Value>();
    if (!arguments_.is(Kind::kDict)) return Wrong("'%(name)' wants a dict");
    const size_t begin = ++pos_;
    int depth = 1;
    for (; pos_ < s_.size(); ++pos_) {
      if (s_[pos_] == '(') ++depth;
      if (s_[pos_] == ')' && --depth == 0) break;
    }
    if (pos_ >= s_.size()) return Wrong("'%(' has no ')'");
    const Value* found = arguments_.AsDict().Find(s_.substr(begin, pos_ - begin));
    if (found == nullptr) return Wrong(absl::StrCat("there is no key '", s_.substr(begin, pos_ - begin), "'"));
    ++pos_;
    return std::optional<Value>(*found);
  }

  // A width or precision: digits, or * for the next argument.
  absl::StatusOr<int64_t> Size() {
    if (pos_ >= s_.size() || s_[pos_] != '*') return TakeNumber(s_, &pos_);
    ++pos_;
    SLUICE_ASSIGN_OR_RETURN(const Value size, Next());
    if (!size.IsInteger()) return Wrong("'*' wants an integer");
    return std::clamp<int64_t>(size.AsInt(), -kMaxSize, kMaxSize);
  }

  absl::Status Directive() {
    if (pos_ < s_.size() && s_[pos_] == '%') {
      ++pos_;
      out_.Append("%", Origin::kTemplate);
      return absl::OkStatus();
    }
    SLUICE_ASSIGN_OR_RETURN(const std::optional<Value> keyed, Keyed());
    left_ = zero_ = false;
    style_ = NumberStyle();
    for (bool flag = true; flag && pos_ < s_.size();) {
      const char c = s_[pos_];
      if (c == '-') left_ = true;
      if (c == '0') zero_ = true;
      if (c == '#') style_.alternate = true;
      if (c == '+' || (c == ' ' && style_.sign != '+')) style_.sign = c;
      flag = absl::string_view("-+ #0").find(c) != kNone;
      pos_ += flag ? 1 : 0;
    }
    SLUICE_ASSIGN_OR_RETURN(width_, Size());
    if (width_ < -1) {
      left_ = true;
      width_ = -width_;
    }
    if (pos_ < s_.size() && s_[pos_] == '.') {
      ++pos_;
      SLUICE_ASSIGN_OR_RETURN(const int64_t precision, Size());
      style_.precision = std::max<int64_t>(precision, 0);
    }
    if (pos_ < s_.size() && absl::string_view("hlL").find(s_[pos_]) != kNone) ++pos_;
    if (pos_ >= s_.size()) return Wrong("'%' has no conversion");
    style_.type = s_[pos_++];
    if (keyed) return Convert(*keyed);
    SLUICE_ASSIGN_OR_RETURN(const Value value, Next());
    return Convert(value);
  }

  absl::Status Convert(const Value& value) {
    switch (style_.type) {
      case 's':
      case 'r':
      case 'a':
        return ConvertText(value);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return ConvertInteger(value);
      case 'c':
        return ConvertCharacter(value);
      default:
        break;
    }
    if (!IsFloatType(style_.type)) {
      return Wrong(absl::StrCat("there is no conversion '%", std::string(1, style_.type), "'"));
    }
    if (value.is(Kind::kUndefined)) return UndefinedError(value);
    if (!value.IsNumber() && !value.is(Kind::kBigInt)) return WantsNumber(value);
    SLUICE_ASSIGN_OR_RETURN(const double d, ToDouble(value));
    SLUICE_ASSIGN_OR_RETURN(const NumberText number, FormatFloatNumber(d, style_));
    return Pad(number, OriginOf(value));
  }

  absl::Status WantsNumber(const Value& value) const {
    return Wrong(absl::StrCat("'%", std::string(1, style_.type), "' wants a number, found ", TypeName(value)));
  }

  absl::Status ConvertText(const Value& value) {
    TextBuilder text(heap_.budget());
    SLUICE_RETURN_IF_ERROR(style_.type == 's' ? AppendStr(value, heap_, text)
                                              : AppendRepr(value, heap_, text, style_.type == 'a'));
    SLUICE_ASSIGN_OR_RETURN(Text plain, std::move(text).Finish());
    const bool escape = format_.is_markup() && !value.is_markup();
    if (escape) {
      TextBuilder escaped(heap_.budget());
      AppendEscaped(plain, escaped);
      SLUICE_ASSIGN_OR_RETURN(plain, std::move(escaped).Finish());
    }
    SLUICE_RETURN_IF_ERROR(heap_.budget().Visit(plain.bytes.size()));
    return AppendAligned(FirstChars(plain, style_.precision), width_, left_ ? Align::kLeft : Align::kRight, " ", out_,
                         heap_);
  }

  absl::Status ConvertInteger(const Value& value) {
    if (value.is(Kind::kUndefined)) return UndefinedError(value);
    Value integer = value;
    const bool decimal = absl::string_view("diu").find(style_.type) != kNone;
    if (decimal && value.is(Kind::kFloat)) {
      SLUICE_ASSIGN_OR_RETURN(integer, IntegerFromFloat(value.AsFloat(), value.origin(), heap_));
    }
    if (!integer.IsWholeNumber()) return WantsNumber(value);
    if (style_.precision > kMaxFloatPrecision) return Wrong("a precision is too large");
    if (integer.is(Kind::kBigInt)) SLUICE_RETURN_IF_ERROR(heap_.budget().Scan(integer.AsView().size() * 64));
    return Pad(FormatInteger(integer, style_), OriginOf(value));
  }

  absl::Status ConvertCharacter(const Value& value) {
    if (value.is(Kind::kString) && CountChars(value.AsView()) == 1) {
      return AppendAligned(Whole(value.AsText()), width_, left_ ? Align::kLeft : Align::kRight, " ", out_, heap_);
    }
    if (!value.IsInteger() || value.AsInt() < 0 || value.AsInt() > 0x10FFFF ||
        (value.AsInt() >= 0xD800 && value.AsInt() < 0xE000)) {
      return Wrong("'%c' wants one character");
    }
    std::string utf8;
    AppendUtf8(static_cast<char32_t>(value.AsInt()), &utf8);
    SLUICE_ASSIGN_OR_RETURN(const Value c, heap_.NewString(utf8, value.origin()));
    return AppendAligned(Whole(c.AsText()), width_, left_ ? Align::kLeft : Align::kRight, " ", out_, heap_);
  }

  absl::Status Pad(const NumberText& number, Origin origin) {
    const bool zeros = zero_ && !left_;
    AppendPadded(number, width_, left_ ? '<' : zeros ? '=' : '>', zeros ? "0" : " ", origin, out_);
    return out_.status();
  }

  static constexpr int64_t kMaxSize = int64_t{1} << 40;

  const absl::string_view s_;
  const Value format_;
  const Value arguments_;
  Heap& heap_;
  TextBuilder out_;
  size_t pos_ = 0;
  size_t next_ = 0;
  // Of the current directive.
  bool left_ = false, zero_ = false;
  int64_t width_ = -1;
  NumberStyle style_;
};

// ---- str.format

struct Spec {
  std::string fill = " ";
  char align = '\0';
  bool zero = false;
  int64_t width = -1;
  char grouping = '\0';
  NumberStyle number;
};

absl::StatusOr<Spec> ParseSpec(absl::string_view s) {
  Spec spec;
  size_t pos = 0;
  auto is_align = [&](size_t at) { return at < s.size() && absl::string_view("<>=^").find(s[at]) != kNone; };
  const size_t fill_size = s.empty() ? 0 : CharLength(s, 0);
  const bool has_fill = fill_size > 0 && is_align(fill_size);
  if (has_fill) {
    spec.fill = std::string(s.substr(0, fill_size));
    spec.align = s[fill_size];
    pos = fill_size + 1;
  } else if (is_align(0)) {
    spec.align = s[pos++];
  }
  auto take = [&](absl::string_view any, char otherwise) {
    return pos < s.size() && any.find(s[pos]) != kNone ? s[pos++] : otherwise;
  };
  spec.number.sign = take("+- ", '\0');
  spec.number.no_negative_zero = take("z", '\0') != '\0';
  spec.number.alternate = take("#", '\0') != '\0';
  if (take("0", '\0') != '\0') {
    spec.zero = true;
    if (!has_fill) spec.fill.assign(1, '0');
  }
  SLUICE_ASSIGN_OR_RETURN(spec.width, TakeNumber(s, &pos));
  spec.grouping = take(",_", '\0');
  if (take(".", '\0') != '\0') {
    SLUICE_ASSIGN_OR_RETURN(spec.number.precision, TakeNumber(s, &pos));
    if (spec.number.precision < 0) return Wrong("a point without a precision");
  }
  spec.number.type = pos < s.size() ? s[pos++] : '\0';
  if (pos != s.size()) return Wrong(absl::StrCat("'", s, "' is no format"));
  return spec;
}

absl::Status AppendText(const Value& text, const Spec& spec, TextBuilder& out, Heap& heap) {
  if ((spec.number.type != '\0' && spec.number.type != 's') || spec.align == '=' || spec.number.sign != '\0' ||
      spec.number.alternate || spec.number.no_negative_zero || spec.grouping != '\0') {
    return Wrong("a string has no such format");
  }
  SLUICE_RETURN_IF_ERROR(heap.budget().Visit(text.AsView().size()));
  const TextSlice shown = FirstChars(text.AsText(), spec.number.precision);
  const auto missing = std::max<int64_t>(spec.width - static_cast<int64_t>(CountChars(shown.view())), 0);
  const int64_t before = spec.align == '>' ? missing : spec.align == '^' ? missing / 2 : 0;
  out.AppendRepeated(spec.fill, before, Origin::kTemplate);
  out.Append(shown);
  out.AppendRepeated(spec.fill, missing - before, Origin::kTemplate);
  return out.status();
}

absl::Status AppendCharacter(const Value& code, const Spec& spec, TextBuilder& out) {
  const bool is_character = code.IsInteger() && code.AsInt() >= 0 && code.AsInt() <= 0x10FFFF &&
                            (code.AsInt() < 0xD800 || code.AsInt() >= 0xE000);
  if (!is_character || spec.number.sign != '\0' || spec.number.alternate || spec.grouping != '\0') {
    return Wrong("'c' wants one character's number alone");
  }
  NumberText text;
  AppendUtf8(static_cast<char32_t>(code.AsInt()), &text.digits);
  const char align = spec.align != '\0' ? spec.align : spec.zero ? '=' : '>';
  AppendPadded(text, spec.width + static_cast<int64_t>(text.digits.size()) - 1, align, spec.fill, code.origin(), out);
  return out.status();
}

absl::Status AppendNumber(const Value& value, Spec spec, TextBuilder& out, Heap& heap) {
  char& type = spec.number.type;
  NumberText number;
  if (value.IsWholeNumber() && (type == '\0' || absl::string_view("bcdoxXn").find(type) != kNone)) {
    if (spec.number.precision >= 0) return Wrong("an integer has no precision");
    if (spec.number.no_negative_zero) return Wrong("'z' is for floats");
    if (type == 'c') return AppendCharacter(value, spec, out);
    if (type == '\0' || type == 'n') type = 'd';
    if (value.is(Kind::kBigInt)) SLUICE_RETURN_IF_ERROR(heap.budget().Scan(value.AsView().size() * 64));
    number = FormatInteger(value, spec.number);
  } else if (type == '\0' || type == '%' || type == 'n' || IsFloatType(type)) {
    if (type == 'n') type = 'g';
    SLUICE_ASSIGN_OR_RETURN(const double d, ToDouble(value));
    SLUICE_ASSIGN_OR_RETURN(number, FormatFloatNumber(d, spec.number));
  } else {
    return Wrong(absl::StrCat("a ", TypeName(value), " has no format '", std::string(1, type), "'"));
  }
  const char align = spec.align != '\0' ? spec.align : spec.zero ? '=' : '>';
  if (spec.grouping != '\0') {
    const bool decimal = absl::string_view("boxX").find(type) == kNone || type == '\0';
    if (!decimal && spec.grouping == ',') return Wrong("',' is for decimal numbers");
    const bool zeros = align == '=' && spec.fill == "0";
    if (zeros) {
      const auto zeros_at_most = static_cast<size_t>(std::max<int64_t>(spec.width, 0));
      SLUICE_RETURN_IF_ERROR(heap.budget().Build(zeros_at_most * 2));
      SLUICE_RETURN_IF_ERROR(heap.budget().Visit(zeros_at_most));
    }
    GroupDigits(spec.grouping, decimal,
                zeros ? spec.width - static_cast<int64_t>(number.sign.size() + number.prefix.size()) : 0,
                &number.digits);
  }
  AppendPadded(number, spec.width, align, spec.fill, OriginOf(value), out);
  return out.status();
}

absl::Status AppendFormatted(const Value& value, absl::string_view spec_text, TextBuilder& out, Heap& heap) {
  if (spec_text.empty()) return AppendStr(value, heap, out);
  SLUICE_ASSIGN_OR_RETURN(const Spec spec, ParseSpec(spec_text));
  if (value.is(Kind::kString)) return AppendText(value, spec, out, heap);
  if (value.IsNumber() || value.is(Kind::kBigInt)) return AppendNumber(value, spec, out, heap);
  return Wrong(absl::StrCat("a ", TypeName(value), " has no format '", spec_text, "'"));
}

class BraceFormatter {
 public:
  BraceFormatter(const Value& format, const CallArguments& arguments, Heap& heap)
      : format_(format), arguments_(arguments), heap_(heap) {}

  // The text [begin, end) of the format with its fields filled in; a field's own format may hold fields, too.
  absl::Status Fill(size_t begin, size_t end, int level, TextBuilder& out) {
    const absl::string_view s = format_.AsView().substr(0, end);
    for (size_t pos = begin; pos < end;) {
      const size_t brace = std::min(s.find_first_of("{}", pos), end);
      out.Append(TextSlice{&format_.AsText(), pos, brace});
      if (brace == end) break;
      if (level == 0 && brace + 1 < end && s[brace + 1] == s[brace]) {
        out.Append(TextSlice{&format_.AsText(), brace, brace + 1});
        pos = brace + 2;
        continue;
      }
      const size_t close = s[brace] == '{' ? FieldEnd(s, brace) : kNone;
      if (close == kNone) return Wrong("a brace stands alone");
      if (level == 2) return Wrong("fields nest too deep");
      SLUICE_RETURN_IF_ERROR(heap_.budget().Spend(1));
      SLUICE_RETURN_IF_ERROR(Field(brace + 1, close, level, out));
      SLUICE_RETURN_IF_ERROR(out.status());
      pos = close + 1;
    }
    return out.status();
  }

 private:
  // The brace that closes the one at `open`.
  static size_t FieldEnd(absl::string_view s, size_t open) {
    int depth = 0;
    for (size_t pos = open; pos < s.size(); ++pos) {
      if (s[pos] == '{') ++depth;
      if (s[pos] == '}' && --depth == 0) return pos;
    }
    return kNone;
  }

  // name!conversion:spec
  absl::Status Field(size_t begin, size_t end, int level, TextBuilder& out) {
    const absl::string_view s = format_.AsView().substr(0, end);
    size_t name_end = begin;
    for (bool in_index = false; name_end < end; ++name_end) {
      if (s[name_end] == '[') in_index = true;
      if (s[name_end] == ']') in_index = false;
      if (!in_index && (s[name_end] == '!' || s[name_end] == ':')) break;
    }
    SLUICE_ASSIGN_OR_RETURN(Value value, Named(s.substr(begin, name_end - begin)));
    size_t pos = name_end;
    if (pos < end && s[pos] == '!') {
      if (pos + 1 >= end || (pos + 2 < end && s[pos + 2] != ':')) return Wrong("a conversion is '!r', '!s' or '!a'");
      SLUICE_ASSIGN_OR_RETURN(value, Converted(value, s[pos + 1]));
      pos += 2;
    }
    std::string spec;
    if (pos < end) {
      TextBuilder filled(heap_.budget());
      SLUICE_RETURN_IF_ERROR(Fill(pos + 1, end, level + 1, filled));
      SLUICE_ASSIGN_OR_RETURN(const Text text, std::move(filled).Finish());
      spec = text.bytes;
    }
    if (!format_.is_markup() || value.is_markup()) return AppendFormatted(value, spec, out, heap_);
    TextBuilder plain(heap_.budget());
    SLUICE_RETURN_IF_ERROR(AppendFormatted(value, spec, plain, heap_));
    SLUICE_ASSIGN_OR_RETURN(const Text text, std::move(plain).Finish());
    AppendEscaped(text, out);
    return out.status();
  }

  absl::StatusOr<Value> Converted(const Value& value, char conversion) {
    if (conversion == 's') return ToStr(value, heap_);
    if (conversion != 'r' && conversion != 'a') return Wrong("a conversion is '!r', '!s' or '!a'");
    TextBuilder out(heap_.budget());
    SLUICE_RETURN_IF_ERROR(AppendRepr(value, heap_, out, conversion == 'a'));
    return heap_.NewString(std::move(out));
  }

  // The argument that a field names: "", "0", "name", each with .attribute and [index] after it.
  absl::StatusOr<Value> Named(absl::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    SLUICE_ASSIGN_OR_RETURN(Value value, Argument(name.substr(0, first_end)));
    for (size_t pos = first_end; pos < name.size();) {
      const bool attribute = name[pos] == '.';
      const size_t end = attribute ? std::min(name.find_first_of(".[", pos + 1), name.size()) : name.find(']', pos);
      if (end == kNone || end == pos + 1) return Wrong(absl::StrCat("'", name, "' is no field"));
      const absl::string_view part = name.substr(pos + 1, end - pos - 1);
      int64_t index = 0;
      Value key = Value::Int(0);
      if (!attribute && absl::SimpleAtoi(part, &index)) {
        key = Value::Int(index);
      } else {
        SLUICE_ASSIGN_OR_RETURN(key, heap_.NewString(part, Origin::kTemplate));
      }
      SLUICE_ASSIGN_OR_RETURN(value, attribute ? GetAttribute(value, key, heap_) : GetItem(value, key, heap_));
      pos = attribute ? end : end + 1;
      if (pos < name.size() && name[pos] != '.' && name[pos] != '[')
        return Wrong(absl::StrCat("'", name, "' is no field"));
    }
    return value;
  }

  absl::StatusOr<Value> Argument(absl::string_view name) {
    size_t index = next_;
    if (name.empty()) {
      if (numbered_) return Wrong("numbered fields and fields without a number are mixed");
      ++next_;
    } else if (absl::SimpleAtoi(name, &index)) {
      if (next_ > 0) return Wrong("numbered fields and fields without a number are mixed");
      numbered_ = true;
    } else {
      const Value* named = arguments_.Keyword(name);
      if (named == nullptr) return Wrong(absl::StrCat("there is no argument '", name, "'"));
      return *named;
    }
    if (index >= arguments_.positional.size()) return Wrong("there are too few arguments");
    return arguments_.positional[index];
  }

  const Value format_;
  const CallArguments& arguments_;
  Heap& heap_;
  size_t next_ = 0;
  bool numbered_ = false;
};

}  // namespace

absl::StatusOr<Value> PercentFormat(const Value& format, const Value& arguments, Heap& heap) {
  return PercentFormatter(format, arguments, heap).Run();
}

absl::StatusOr<Value> BraceFormat(const Value& format, const CallArguments& arguments, Heap& heap) {
  TextBuilder out(heap.budget());
  SLUICE_RETURN_IF_ERROR(BraceFormatter(format, arguments, heap).Fill(0, format.AsView().size(), 0, out));
  SLUICE_ASSIGN_OR_RETURN(const Value result, heap.NewString(std::move(out)));
  return result.MarkupLike(format);
}

}  // namespace sluice::jinja
