# frozen_string_literal: true

require "open3"
require_relative "../../lib/memintro/support/settings"

# The files that are made from the list of settings in lib/memintro/support/settings.rb.
class SettingFiles
  ROOT = File.expand_path("../..", __dir__)
  MADE = "Made by `rake settings` from lib/memintro/support/settings.rb."
  # Where a part of a page begins and ends.
  BEGINS = "settings: made by `rake settings`"
  ENDS = "/settings"
  # Comments, by the ending of a file.
  COMMENTS = { ".md" => "<!-- %s -->", ".rbs" => "    # %s", ".rb" => "    # %s" }.freeze

  # YARD's words for types of sig/.
  TYPES = { "bool" => "Boolean", "format" => "Symbol", "mode" => "Symbol", "figure" => "Symbol",
            "Memintro::objects" => "Boolean, :sampled, Array<Class, String>" }.freeze
  private_constant :ROOT, :MADE, :BEGINS, :ENDS, :COMMENTS, :TYPES

  def initialize
    @all = Memintro::Settings::ALL
    @hook = @all.select(&:hook)
  end

  # @return [Hash{String => String}] texts by path
  def texts
    { "lib/memintro/support/defaults.rb" => part("lib/memintro/support/defaults.rb", values),
      "crates/abi/src/settings.rs" => formatted(rust),
      "crates/abi/include/memintro_settings.h" => header, "lib/memintro/support/setting_documents.rb" => documents,
      "docs/settings.md" => part("docs/settings.md", table),
      "sig/memintro/configuration.rbs" => part("sig/memintro/configuration.rbs", signatures),
      "sig/memintro/tracking.rbs" => tracking }
  end

  # @return [Array<String>] files that are not as they should be
  def stale = texts.reject { |path, text| File.exist?(file(path)) && File.read(file(path)) == text }.keys

  # @return [void]
  def write
    texts.each { |path, text| File.write(file(path), text) }
  end

  private

  def file(path) = File.join(ROOT, path)

  def part(path, text)
    first, last = [BEGINS, ENDS].map { |words| "#{format(COMMENTS.fetch(File.extname(path)), words)}\n" }
    before, rest = File.read(file(path)).split(first, 2)
    "#{before}#{first}#{text}#{last}#{rest.split(last, 2).last}"
  end

  def words(setting, text)
    figures = { default: setting.hook.is_a?(Integer) ? number(setting.hook) : setting.hook,
                least: setting.least && number(setting.least) }
    text.gsub(/%<(\w+)>s/) { figures.fetch($1.to_sym) }
  end

  def number(value) = value.to_s.reverse.scan(/\d{1,3}/).join(",").reverse

  def plain(setting, text) = words(setting, text).gsub(/\[(.*?)\]\(.*?\)/, '\1')

  def table
    rows = @all.map do |setting|
      "| `#{setting.variable}` | `#{setting.flag}` | #{words(setting, setting.about)} | " \
        "#{words(setting, setting.otherwise)} |\n".squeeze(" ")
    end
    "\n| variable | flag | means | default |\n|---|---|---|---|\n#{rows.join}\n"
  end

  def signatures = @all.map { |setting| "    attr_accessor #{setting.name}: #{setting.type}\n" }.join

  # The keywords of a start, wherever they stand.
  def tracking
    keywords = @all.select(&:start).map do |setting|
      "?#{setting.name}: #{setting.name == :mode ? 'mode | String' : setting.type.sub('Memintro::', '')}"
    end
    File.read(file("sig/memintro/tracking.rbs")).gsub(/\((\?\w+: [^()]*)\)/) { "(#{keywords.join(', ')})" }
  end

  def values
    <<-RUBY
    # Values that are not nil, of settings that are not set.
    VALUES = { #{pairs(@all.reject { |setting| setting.default.nil? }, &:default)} }.freeze
    # Least and greatest numbers.
    LEAST = { #{pairs(@all.select(&:least), &:least)} }.freeze
    MOST = { #{pairs(@hook.select(&:allowed), &:allowed)} }.freeze
    # What {Memintro.start} takes.
    START = #{list(@all.select(&:start).map(&:name), '%i')}.freeze
    # Numbers that the hook takes, in its order; 0 is the default.
    HOOK = #{list(@hook.map(&:name), '%i')}.freeze
    # Variables that {Settings} has to read and check.
    CHECKED = #{list(@all.reject(&:plain).map(&:variable), '%w')}.freeze
    RUBY
  end

  def pairs(settings)
    settings.map { |setting| "#{setting.name}: #{yield(setting).inspect.gsub(/(?<=\d)(?=(?:\d{3})+\z)/, '_')}" }
            .join(", ")
  end

  def list(words, kind)
    lines = words.each_with_object([+""]) do |word, made|
      made << +"" if made.last.size + word.size > 92
      made.last << (made.last.empty? ? word.to_s : " #{word}")
    end
    "#{kind}[#{lines.join("\n#{' ' * 17}")}]"
  end

  def documents
    attributes = @all.map do |setting|
      text = "#{plain(setting, setting.about)}; default: #{plain(setting, setting.otherwise)}"
      "    # @!attribute [rw] #{setting.name}\n    #   @return [#{type(setting)}]\n" \
        "#{wrapped(text.sub(/; default: \z/, ''))}"
    end
    <<~RUBY
      # frozen_string_literal: true

      # #{MADE}
      module Memintro
        class Configuration
      #{attributes.join}  end
      end
    RUBY
  end

  def type(setting)
    setting.type.sub(/\?\z/, " | nil").split(" | ").map { |one| TYPES.fetch(one, one) }.join(", ")
  end

  # As rustfmt has it.
  def formatted(text)
    made, status = Open3.capture2("rustfmt", "--edition", "2024", "--config-path", ROOT, stdin_data: text)
    raise "rustfmt refuses crates/abi/src/settings.rs" unless status.success?

    made
  end

  def wrapped(text)
    text.scan(/\S.{0,104}(?=\s|\z)/).map { |line| "    #     #{line}\n" }.join
  end

  def rust
    fields = @hook.map do |setting|
      "    /// #{plain(setting, setting.about).sub(/\A./, &:upcase)}.\n    pub #{setting.name}: u64,\n"
    end
    rows = @hook.map do |setting|
      "        StartSetting { name: #{setting.name.to_s.inspect}, variable: c#{setting.variable.inspect}, " \
        "default: #{setting.hook == :none ? 'u64::MAX' : setting.hook}, most: #{setting.allowed || 'u64::MAX'} },\n"
    end
    names = @hook.map(&:name).join(", ")
    <<~RUST
      //! #{MADE}

      use core::ffi::CStr;

      use crate::Mode;

      /// Options of a start. Zero means "the default".
      #[repr(C)]
      #[derive(Clone, Copy, Debug, PartialEq, Eq)]
      pub struct StartOptions {
          /// The mode.
          pub mode: Mode,
      #{fields.join}    /// [`Mode::SAMPLED`]: the seed of the draws; by default the clock, with the process id in a child.
          pub seed: u64,
      }

      /// A setting that the hook reads.
      #[derive(Clone, Copy, Debug)]
      pub struct StartSetting {
          /// Its name.
          pub name: &'static str,
          /// Its variable.
          pub variable: &'static CStr,
          /// Its value if it is not set.
          pub default: u64,
          /// Its greatest value.
          pub most: u64,
      }

      /// The settings that the hook reads, in the order of [`StartOptions::values`].
      pub const START_SETTINGS: [StartSetting; #{@hook.size}] = [
      #{rows.join}];

      impl StartOptions {
          /// Options with these values.
          #[must_use]
          pub const fn new(mode: Mode, values: [u64; #{@hook.size}]) -> Self {
              let [#{names}] = values;
              Self { mode, #{names}, seed: 0 }
          }

          /// The values of the settings.
          #[must_use]
          pub const fn values(&self) -> [u64; #{@hook.size}] {
              [#{@hook.map { |setting| "self.#{setting.name}" }.join(', ')}]
          }
      }
    RUST
  end

  def header
    <<~C
      /* #{MADE} */
      #ifndef MEMINTRO_SETTINGS_H
      #define MEMINTRO_SETTINGS_H

      #include <stdint.h>

      typedef struct {
          uint32_t mode;
          uint64_t #{@hook.map(&:name).join(', ')}, seed;
      } memintro_start_options;

      #endif
    C
  end
end
