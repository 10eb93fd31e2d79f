# frozen_string_literal: true

# Loads the extension, which defines Memintro::Native (private: its methods change without notice). Nothing is hooked
# or patched by loading it.
require_relative "paths"

begin
  require_relative Memintro::Paths.extension
rescue LoadError => e
  rubies = Memintro::Paths.precompiled
  advice = if rubies.empty?
             "In a checkout run bin/setup; for an installed gem run `gem pristine memintro` with this Ruby."
           else
             "This gem was compiled for Ruby #{rubies.join(', ')}, with glibc. For another Ruby or another C library " \
               "have it compiled on this machine: `gem uninstall memintro`, then " \
               "`gem install memintro --platform ruby`."
           end
  raise LoadError, "memintro's extension does not load in Ruby #{RUBY_VERSION}: #{e.message}. #{advice}"
end
