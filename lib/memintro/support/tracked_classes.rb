# frozen_string_literal: true

require_relative "arguments"

module Memintro
  # Checks which Ruby objects are to be tracked: the setting `objects`.
  # @api private
  module TrackedClasses
    # A name of a class, such as `Shop::Message`, or of a kind of objects of the VM, such as `imemo_callcache`.
    CLASS_NAME = /\A(?:\p{Upper}[^\s,:]*(?:::\p{Upper}[^\s,:]*)*|imemo_[a-z_]+)\z/
    private_constant :CLASS_NAME

    # @param name [Symbol] of the argument, for the message
    # @param value [Object]
    # @return [Boolean, Symbol, Array<Class, String>] the value, checked
    # @raise [ArgumentError, TypeError]
    def self.checked(name, value)
      return value if [true, false].include?(value)
      return :sampled if [:sampled, "sampled"].include?(value)

      # Made only if it is needed: a class may have an inspect of its own, and an Array thousands of names.
      wrong = lambda do
        "#{name} is #{Arguments.shown(value)}; it must be true, false, :sampled, or an Array of classes and names of " \
          "classes"
      end
      raise TypeError, wrong.call unless Array === value
      raise ArgumentError, "#{wrong.call}, at least one" if value.empty?

      # Classes may also have a hash and an eql? of their own.
      value.map { |one| class_or_name(one, wrong) }.uniq { |one| String === one ? one : ID.bind_call(one) }.freeze
    end

    ID = BasicObject.instance_method(:__id__)
    IS_SINGLETON = Module.instance_method(:singleton_class?)
    private_constant :ID, :IS_SINGLETON

    # @return [Boolean] whether it can be the name of a class, or of a kind of objects of the VM
    def self.name?(text)
      text = text.dup.force_encoding(Encoding::UTF_8)
      text.valid_encoding? && text.match?(CLASS_NAME)
    end

    def self.class_or_name(value, wrong)
      case value
      when Class
        return value unless IS_SINGLETON.bind_call(value)

        problem = "is a singleton class, of which no object is made"
      when Module then problem = "is a module; name the classes that include it"
      when String, Symbol
        return value.to_s.dup.freeze if name?(value.to_s)

        problem = 'is no name such as "Shop::Message"'
      end
      raise problem ? ArgumentError : TypeError, "#{wrong.call}: #{Arguments.shown(value)} #{problem || 'is neither'}"
    end
    private_class_method :class_or_name
  end
end
