# frozen_string_literal: true

# Loads the extension, which defines Memintro::Native (private: its methods change without notice). Nothing is hooked
# or patched by loading it. An extension that was compiled for another Ruby is not loaded, because it would crash.
require_relative "paths"

begin
  extension = Memintro::Paths.extension
  damage = Memintro::Paths.damage(extension)
  raise LoadError, damage if damage

  other = Memintro::Paths.foreign(extension)
  raise LoadError, "#{extension} was compiled for Ruby #{other}" if other

  require_relative extension
  Memintro::Native.note_hook(Memintro::Paths.hook)
rescue LoadError => e
  rubies = Memintro::Paths.precompiled
  advice = if other
             "There is no build for Ruby #{RUBY_VERSION}: install the gem with this Ruby, or run rake compile with " \
               "it in the checkout."
           elsif rubies.empty?
             "In a checkout run bin/setup; for an installed gem run `gem pristine memintro` with this Ruby."
           else
             "This gem was compiled for Ruby #{rubies.join(', ')}, with glibc. For another Ruby or another C library " \
               "have it compiled on this machine: `gem uninstall memintro`, then " \
               "`gem install memintro --platform ruby`."
           end
  raise LoadError, "memintro's extension does not load in Ruby #{RUBY_VERSION}: #{e.message}. #{advice}"
end
