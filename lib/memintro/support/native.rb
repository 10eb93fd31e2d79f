# frozen_string_literal: true

# Loads the extension, which defines Memintro::Native (private: its methods change without notice). Nothing is hooked
# or patched by loading it.
require_relative "../error"
require_relative "paths"

begin
  require_relative Memintro::Paths.extension
rescue LoadError => e
  raise LoadError, "memintro's extension does not load in Ruby #{RUBY_VERSION}: #{e.message}. In a checkout run " \
                   "bin/setup; for an installed gem run `gem pristine memintro` with this Ruby."
end
